"""Charts as SVG, drawn here: they print, and show without scripts. Colours are classes of the page's style."""
