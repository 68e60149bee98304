"""The TCP side: listeners, connections, frames. What a request means is the engine's business."""
