// Package browser runs fleets and looks at their status pages with a real browser:
// headless Chromium, driven by its own protocol. It is a module of its own, so that
// what drives the browser is no dependency of Ringway.
//
// Promise: a page that passed here loaded nothing from elsewhere, logged no error and
// threw nothing, in whatever a test did with it.
//
//	Fleet (relays and workers, this process) ◄── http ── Chromium ◄── DevTools ── Tab
//	   ▲                                                                          │
//	   └── Kill, StartWorker, Load                     console, exceptions, requests
//
// Rules: a Fleet and a Browser belong to who started them and end with Stop or Close;
// then nothing of them is left. Waiting is for a condition in the page, with a
// deadline.
package browser
