"""What a worker counts. The names are a contract: dashboards and alerts are written against them.

| metric | labels | counts |
|---|---|---|
| `deedbox_attempts_total` | tool, ended | attempts by how they ended, in the words of their reports |
| `deedbox_outcomes_total` | tool, status | calls that became done, refused, gave_up or in_doubt here, each doubt once |
| `deedbox_late_total` | tool | reports that came too late and are kept |
| `deedbox_effects_after_closing_total` | tool | of these, effects of calls that were closed without one |
| `deedbox_strays_total` | tool | records that were set aside |
| `deedbox_sweep_total` | duty | what the sweep did, by duty |
| `deedbox_running` | tool | calls under way |
| `deedbox_unanswered_seconds` | tool | for how long the oldest received record has been waiting for its claim |

They are served at `/metrics` beside `/livez`, in the default registry of prometheus-client.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge

attempts: Counter = Counter("deedbox_attempts_total", "Attempts by how they ended.", ["tool", "ended"])
outcomes: Counter = Counter("deedbox_outcomes_total", "Calls by what became of them.", ["tool", "status"])
late: Counter = Counter("deedbox_late_total", "Reports that came too late and are kept.", ["tool"])
alarms: Counter = Counter(
    "deedbox_effects_after_closing_total", "Effects of calls that had been closed without one.", ["tool"]
)
strays: Counter = Counter("deedbox_strays_total", "Records that were set aside.", ["tool"])
swept: Counter = Counter("deedbox_sweep_total", "What the sweep did.", ["duty"])
running: Gauge = Gauge("deedbox_running", "Calls under way.", ["tool"])
unanswered: Gauge = Gauge(
    "deedbox_unanswered_seconds", "For how long the oldest received record has been waiting for its claim.", ["tool"]
)
