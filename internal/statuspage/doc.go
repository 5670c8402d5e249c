// Package statuspage is the web page on the admin address of a process, for browsers.
//
// Promise: the page shows only what the process knows, and the browser sends no request to
// other members: a relay asks the others for their traffic, and counts its callers, while
// its page is read. The page works without JavaScript; with JavaScript it is kept up to
// date. It loads nothing from other origins, names of members and services cannot inject
// markup, and without a reader the page costs nothing.
//
//	Document (a value) ──► page.html ──► GET /          the whole page
//	       ▲                  │
//	       │ every 500 ms     └────────► GET /events    the sections that changed
//	  relay, worker                      GET /assets/…  style, script, icon
//
// Sections, the ring included, are drawn here only. The script replaces the old content
// with the received one node by node, so that focus and selection stay.
//
// Rules: a Document must not change after it was returned. The goroutine of a request to
// /events serves that listener and ends with the request: this package starts no
// goroutines. The number of listeners is limited. Listeners of the same sections share what
// one of them has drawn, for a time that grows with the time of drawing. The first event names
// the process, and the script loads the page again if that is another. Colours are custom properties in assets/page.css, and nowhere else:
// a test computes their contrast.
package statuspage
