"""How a chat model is spoken to: pure functions per dialect, and no client.

tools(tools)              what a request offers
calls(reply)              what a reply asks for, in its order
said(reply)               the reply as messages, word for word
answers(reply, answers)   one answer for each call, all in one go
text(reply), news(text)   what was said, and what somebody says next
"""

from deedbox.chat.anthropic_messages import anthropic_chat
from deedbox.chat.dialect import Answer, Asked, Chat, Json, plain, user
from deedbox.chat.openai_completions import openai_chat
from deedbox.chat.openai_items import openai_responses

__all__ = ["Answer", "Asked", "Chat", "Json", "anthropic_chat", "openai_chat", "openai_responses", "plain", "user"]
