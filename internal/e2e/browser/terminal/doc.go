// Package terminal is as much of a terminal as a table that is redrawn in place needs,
// and draws what is on its screen.
//
// Promise: what the picture shows is what a terminal of that size shows, for programs
// that print text, move the cursor up and clear; anything else is left out, and
// counted in Unknown.
//
//	program ──► pseudo-terminal ──► Screen ──► SVG
//
// Rules: a Screen is not safe for concurrent use.
package terminal
