"""How far the sampling of text leaves a figure open: the bootstrap over documents or windows."""
