"""Conversations as records hold them, made into one form: role and content, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tpuworker.errors import DataError, Fault

if TYPE_CHECKING:
    import pyarrow as pa

Message = dict[str, Any]

#: Names of roles in use, and what templates call them.
_ROLES = {
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant", "model": "assistant",
    "system": "system", "developer": "system",
    "tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool",
}  # fmt: skip
#: Pairs of field names in use; the first that a column has counts.
_FIELDS = (("role", "content"), ("from", "value"))


@dataclass(frozen=True, slots=True)
class BadTurns:
    """Why a conversation cannot be used."""

    reason: str
    detail: str = ""


def turn_fields(column_type: pa.DataType) -> tuple[str, str]:
    """Return the names of the fields with role and content.

    Raises:
        DataError: The column holds no lists of messages.
    """
    import pyarrow as pa

    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    item = column_type.value_type if any(kind(column_type) for kind in kinds) else None
    names = [field.name for field in item] if item is not None and pa.types.is_struct(item) else []
    for role, content in _FIELDS:
        if role in names and content in names:
            return role, content
    raise DataError(
        [
            Fault(
                path="conversation column",
                found=f"messages with {', '.join(names)}" if names else f"type {column_type}",
                wanted="lists of messages with role and content, or from and value",
                hint="name another column in spec.data.conversation_column, or write the data in that form",
            )
        ]
    )


def read_turns(
    record: list[Message] | None, fields: tuple[str, str], system_role: Literal["keep", "merge", "refuse"]
) -> list[Message] | BadTurns:
    """Return a conversation's messages with ``role`` and ``content``, or why it cannot be used.

    Args:
        record: The messages as Arrow gives them: a field that a message does not have is None.
        fields: Names of role and content.
        system_role: What becomes of a system message: ``merge`` puts it before the first user turn.
    """
    if not record:
        return BadTurns("empty-conversation", "no messages")
    messages: list[Message] = []
    for place, raw in enumerate(record):
        message = _read_message(raw, fields, place)
        if isinstance(message, BadTurns):
            return message
        messages.append(message)
    roles = [message["role"] for message in messages]
    for place, role in enumerate(roles):
        if role == "system" and place > 0:
            return BadTurns("role-order", f"message {place}: system after the first message")
        if place > 0 and role == roles[place - 1] and role != "tool":
            return BadTurns("role-order", f"message {place}: {role} after {role}")
    if roles[0] != "system" or system_role == "keep":
        return messages
    if system_role == "refuse":
        return BadTurns("system-role", "the conversation begins with a system message")
    return _merge_system(messages)


def _read_message(raw: Message | None, fields: tuple[str, str], place: int) -> Message | BadTurns:
    if raw is None:
        return BadTurns("null-message", f"message {place}")
    role_field, content_field = fields
    name = raw.get(role_field)
    if name is None:
        return BadTurns("no-role", f"message {place}")
    role = _ROLES.get(str(name).lower())
    if role is None:
        return BadTurns("unknown-role", f"message {place}: {str(name)[:40]!r}")
    others = {key: value for key, value in raw.items() if key not in fields and value is not None and value != []}
    content = raw.get(content_field)
    if content is None:
        # A call of a tool says nothing; anything else without content must not become the text "None".
        if not others.get("tool_calls"):
            return BadTurns("null-content", f"message {place}, {role}")
        content = ""
    if not isinstance(content, str):
        text = _text_of_parts(content)
        if text is None:
            return BadTurns("no-text-content", f"message {place}, {role}: {type(content).__name__}")
        content = text
    return {**others, "role": role, "content": content}


def _text_of_parts(content: Any) -> str | None:
    """Join the text of content given in parts; None if a part is something else than text."""
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") == "text":
            texts.append(part["text"])
        else:
            return None
    return "".join(texts)


def _merge_system(messages: list[Message]) -> list[Message] | BadTurns:
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return BadTurns("system-role", "no user turn behind the system message to merge it into")
    merged = "\n\n".join(text for text in (system["content"], rest[0]["content"]) if text)
    return [{**rest[0], "content": merged}, *rest[1:]]
