// Package statuspage is the page that a process shows to whoever opens its admin
// address in a browser.
//
// Promise: the page says what the process knows, and nothing else: it asks nobody.
// It works without JavaScript; with it, it is kept up to date. It loads nothing from
// elsewhere, names of members and services cannot break out of their place in it,
// and while nobody looks it costs nothing.
//
//	Document (a value) ──► page.html ──► GET /          the whole page
//	       ▲                  │
//	       │ every 500 ms     └────────► GET /events    the sections that changed
//	  relay, worker                      GET /assets/…  style, script, icon
//
// Sections are drawn here only, the ring included: the script puts what it is sent in
// place of what was there, node by node, so that focus and selection stay.
//
// Rules: a Document is the page's once it was returned. Every listener of /events is
// served by the goroutine of its request, which ends with the request: this package
// starts none. The number of listeners is bounded, and one that takes long to draw
// rests for longer. Colours are custom properties in assets/page.css, and nowhere
// else: a test computes their contrast.
package statuspage
