package admin

import (
	"io"
	"net/http"
	"net/http/pprof"
	"os"
)

// HandlePprof adds the profiles of the Go runtime. They tell much of a process and
// cost it something: only when asked for.
func HandlePprof(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// cmdline answers with the name of the program alone, unlike pprof.Cmdline: its
// arguments may be secrets. /api/v1/config has the settings without them.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0]) // the client's connection is its own affair
}
