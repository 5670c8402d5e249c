// Package screen redraws lines on a terminal, for commands that show the present state of
// something until they are interrupted.
//
// Promise: a frame replaces the one before without flicker, because it is one write that clears
// only what it does not overwrite.
//
//	lines ──► Draw ──► from the top of the terminal, or over the last frame
//
// Rules: a Screen is for one goroutine. A frame never makes the terminal scroll: Draw cuts what does
// not fit. A caller that knows which lines matter least leaves those out before.
package screen
