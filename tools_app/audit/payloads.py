"""How arguments and result of a call go to the database: as they are, or packed where they are long.

The recorder's thread asks for it when it builds rows, so that no call waits for the compression of another one's.
"""

from tools_app.audit.rows import Payload
from tools_app.models.config import config
from tools_app.models.packing import pack


def as_stored(payload: Payload) -> Payload:
    """The row of `payload`: with its texts, or with them packed if both together pass MCPHUB_COMPRESS_BYTES."""
    limit = config.MCPHUB_COMPRESS_BYTES
    if not limit or len(payload.arguments) + len(payload.result) <= limit:
        return payload
    packed = pack(payload.arguments, payload.result)
    return payload if packed is None else Payload(payload.call_id, "", "", packed)
