// Package browser runs fleets and tests their status pages with a real browser: headless
// Chromium, controlled through the DevTools protocol. It is a separate module, so that the
// driver of the browser is not a dependency of Ringway, and outside the workspace: its
// commands need GOWORK=off.
//
// Promise: a page that passed a test loaded nothing from other origins, logged no error and
// threw no exception, in all steps of the test.
//
//	fleet.Fleet (this process) ◄── http ── Chromium ◄── DevTools ── Tab
//	                                                                 │
//	                                         console, exceptions, requests
//
// Rules: a Browser belongs to the code that started it and ends with Close; then nothing of
// it is left. Waiting is for a condition in the page, with a deadline.
package browser
