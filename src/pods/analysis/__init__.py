"""From run folders to tables and figures. Imports no torch: a laptop can draw a study."""
