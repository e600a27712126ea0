"""A person who settles what is in doubt, by what the provider's books say."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Final

from tests.chaos.tools import family_of
from tests.chaos.world import World

WHO: Final = "a person"
DOUBTS: Final = """
SELECT a.id, a.key, a.tool, a.args ->> 'about' FROM action a JOIN outcome o ON o.action_id = a.id
WHERE o.status = 'in_doubt' ORDER BY a.id
"""


def settle(world: World) -> list[str]:
    """Resolve every doubt, and put every second call that did not happen back to work; gives what was refused.

    To be called when no request can arrive any more: a person cannot know better than the books.
    """
    refused = []
    happened: defaultdict[str, list[int]] = defaultdict(list)
    for number, effect in enumerate(world.outside.books.effects(), 1):
        happened[effect.about].append(number)
    for at, (id_, key, tool, about) in enumerate(world.rows(DOUBTS)):
        found = happened[about]
        result = json.dumps({"id": f"ef_{found[0]}"}) if found else None
        said = world.rows("SELECT resolve(%s, %s::json, %s, 'by the books')", key, result, WHO)[0][0]
        if said != ("done" if found else "gave_up"):
            refused.append(f"{about}: resolved, and the ledger says {said}")
        elif not found and at % 2:
            # A key that the provider may have forgotten, or under which it stored a failure, is no use any more.
            rekey = family_of(tool).effect.window is not None
            again = world.rows("SELECT verdict FROM redrive(ARRAY[%s::uuid], %s, %s, 'by the books')", id_, rekey, WHO)
            if again != [("redriven",)]:
                refused.append(f"{about}: redriven, and the ledger says {again}")
    return refused
