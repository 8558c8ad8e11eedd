// The object that a precompiled header belongs to.
