// Package terminal emulates as much of a terminal as a table that is redrawn in place
// needs, and draws the screen as SVG.
//
// Promise: the picture equals the screen of a terminal of that size, for programs that
// print text, move the cursor up and clear; all other control sequences are skipped and
// counted in Unknown.
//
//	program ──► pseudo-terminal ──► Screen ──► SVG
//
// Rules: a Screen is not safe for concurrent use.
package terminal
