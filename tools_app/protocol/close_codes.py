"""Close codes of the WebSocket transport: 4000 plus the corresponding HTTP status. Not every server can send others."""

from typing import Final

NOT_ALLOWED: Final = 4401
TOO_LARGE: Final = 4413
NOT_TEXT: Final = 4415
# The key or its tenant has too many streams, or its large messages leave no memory for another one.
TOO_MANY: Final = 4429
TOO_MANY_FRAMES: Final = 4430
FAILED: Final = 4500
STOPPING: Final = 4503
