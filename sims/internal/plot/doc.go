// Package plot draws the pictures of scenarios: as SVG, inline in a page or as a file, and
// as PNG.
//
// # Promise
//
// Equal plots give equal bytes. Text and axes of an inline SVG have the colour of the
// surrounding text, and the colours of series are readable on light and dark backgrounds.
// Each picture is self-contained.
//
// # Picture
//
//	scenario.Plot ──► draw ──► SVG      a file: dark on white
//	                    │  ──► Inline   part of a page: in the page's colours
//	                    └────► PNG
//
// # Rules
//
// All functions are pure and safe for concurrent use. A series looks the same in all three
// formats, and the position of a series in the plot decides its colour and mark.
package plot
