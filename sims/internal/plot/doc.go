// Package plot draws the pictures of scenarios: as SVG, to put into a page or a file, and
// as PNG.
//
// # Promise
//
// Equal plots give equal bytes. Text and axes of an inline SVG take the colour of the text
// around it, and the colours of series are readable on light and on dark ground. Nothing
// outside the file is needed to show it.
//
// # Picture
//
//	scenario.Plot ──► draw ──► SVG      a file: dark on white
//	                    │  ──► Inline   part of a page: in its colours
//	                    └────► PNG
//
// # Rules
//
// Everything here is pure and safe for concurrent use. A series looks the same in each of
// the three, and its place in the plot decides its colour and mark.
package plot
