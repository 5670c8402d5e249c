// Package browser runs fleets and tests their status pages with a real browser: headless
// Chromium, controlled through the DevTools protocol. It is a separate module, so that the
// driver of the browser is not a dependency of Ringway, and outside the workspace: its
// commands need GOWORK=off.
//
// Promise: a page that passed a test loaded nothing from other origins, logged no error and
// threw no exception, in all steps of the test.
//
//	Fleet (relays and workers, this process) ◄── http ── Chromium ◄── DevTools ── Tab
//	   ▲                                                                          │
//	   └── Kill, StartWorker, Load                     console, exceptions, requests
//
// Rules: a Fleet and a Browser belong to the code that started them and end with Stop or
// Close; then nothing of them is left. Waiting is for a condition in the page, with a
// deadline.
package browser
