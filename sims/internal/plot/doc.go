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
// formats. No two series of a plot look alike: the position of a series decides its colour,
// and its position among the lines with marks, or those with dashes, decides which it has. A
// plot with too many series is an error. Events and references have the colour of the axes.
package plot
