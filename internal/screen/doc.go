// Package screen redraws lines on a terminal, for commands that show the present state of
// something until they are interrupted.
//
// Promise: a frame replaces the one before without flicker, because it is one write that clears
// only what it does not overwrite.
//
//	lines ──► Draw ──► from the top of the terminal, or over the last frame
//
// Rules: a Screen is for one goroutine. The caller makes lines that fit: Draw cuts none, so that
// the caller decides what is left out.
package screen
