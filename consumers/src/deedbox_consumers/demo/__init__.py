"""The double-charge story, played on real parts: `deedbox demo`."""
