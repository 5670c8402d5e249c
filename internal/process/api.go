package process

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/membership"
)

// AdminConfig defines access to the admin API of a daemon, and what the API serves. The
// zero value is for loopback: every caller may use the API, and there are no profiles.
type AdminConfig struct {
	// Hosts, TokenFile, TLS and Operators are the fields of AccessConfig.
	Hosts     []string
	TokenFile string
	TLS       bool
	Operators []string
	// Pprof enables /debug/pprof/.
	Pprof bool
}

// Serve makes mux the handler of server, protected by Access; access has the fields
// that c does not have, and its Logger gets what server reports. A caller that reads no answer
// loses its connection. If server.TLSConfig is
// set afterwards, serve with ServeTLS.
func (c AdminConfig) Serve(server *http.Server, mux *http.ServeMux, access AccessConfig) error {
	if c.Pprof {
		HandlePprof(mux)
	}
	access.Hosts, access.TokenFile, access.TLS, access.Operators = c.Hosts, c.TokenFile, c.TLS, c.Operators
	a, err := NewAccess(access)
	if err != nil {
		return err
	}
	server.Handler = a.Guard(mux)
	a.Secure(server)
	server.WriteTimeout = writeTimeout
	if server.HTTP2 == nil {
		server.HTTP2 = &http.HTTP2Config{}
	}
	server.HTTP2.WriteByteTimeout = ReaderPause // for a connection with all its streams
	server.ErrorLog = log.New(serverErrors{a.cfg.Logger}, "", 0)
	return nil
}

// serverErrors logs what an http.Server reports, which writes lines without a level. A caller can
// cause all of them but panics, and any number of them, so they are for debug.
type serverErrors struct{ logger *slog.Logger }

func (w serverErrors) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("http: panic serving")) || bytes.HasPrefix(line, []byte("http2: panic serving")) {
		level = slog.LevelError
	}
	w.logger.Log(context.Background(), level, "http server: "+string(bytes.TrimSpace(line)))
	return len(line), nil
}

// APIConfig is the data that the common paths of the daemons serve.
type APIConfig struct {
	ID string
	// Snapshot returns the newest view of the members; it may return nil soon after the
	// start.
	Snapshot func() *membership.Snapshot
	// Running has the settings in effect; nil if the daemon was not started from settings.
	Running *Running
	// Monitor streams the log; nil if log streaming is off.
	Monitor *Monitor
}

// Handle adds the paths of the admin API that relay and worker have in common, in addition
// to those of package admin.
func Handle(mux *http.ServeMux, cfg APIConfig) {
	mux.HandleFunc("GET /api/v1/config", func(w http.ResponseWriter, _ *http.Request) {
		if cfg.Running == nil {
			WriteError(w, http.StatusConflict, "this process was not started from settings: there are none to show")
			return
		}
		WriteJSON(w, http.StatusOK, api.Config{ID: cfg.ID, Settings: api.Settings(cfg.Running.Values())})
	})
	if cfg.Monitor != nil {
		mux.Handle("GET /api/v1/monitor", cfg.Monitor)
	}
	mux.HandleFunc("GET /api/v1/version", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, ReadBuild())
	})
	mux.HandleFunc("GET /api/v1/goroutines", writeGoroutines)
	mux.HandleFunc("GET /api/v1/departures", func(w http.ResponseWriter, _ *http.Request) {
		answer := api.Departures{Departed: []membership.Departure{}}
		if s := cfg.Snapshot(); s != nil {
			answer.Degraded = s.Degraded()
			answer.Departed = append(answer.Departed, s.Departures()...)
		}
		WriteJSON(w, http.StatusOK, answer)
	})
}

// writeGoroutines writes the stack of every goroutine: functions and lines, no values. It
// stops the process meanwhile, which takes milliseconds with thousands of goroutines.
func writeGoroutines(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s := NewStream(w, ReaderPause)
	defer s.Close()
	_ = pprof.Lookup("goroutine").WriteTo(s, 1) // an error concerns only the connection of the client
}

// BuildInfo is a metric with the version of the running build as labels.
func BuildInfo() prometheus.Collector {
	b := ReadBuild()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringway_build_info", Help: "1, with the version of the running build in its labels.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go_version": b.Go},
	})
	g.Set(1)
	return g
}

// RegisterReady adds a metric that is 1 if the process should get traffic, which is the
// case while reasons returns none. Every scrape calls reasons.
func RegisterReady(reg prometheus.Registerer, reasons func() []Reason) {
	metric.With(reg).GaugeFunc("ringway_ready", "1 while this process should get traffic, as /readyz reports; 0 while it should not.", func() float64 {
		if len(reasons()) > 0 {
			return 0
		}
		return 1
	})
}

// version is set by release builds:
//
//	go build -ldflags "-X github.com/ringway/ringway/internal/process.version=v1.2.3"
var version string

// Build describes the running binary. Unknown fields are empty.
type Build struct {
	Version  string `json:"version" yaml:"version"`   // "v1.2.3", or "devel" for a local build
	Revision string `json:"revision" yaml:"revision"` // the git commit, 12 digits
	Time     string `json:"time" yaml:"time"`         // the commit's time, RFC 3339
	Modified bool   `json:"modified" yaml:"modified"` // built from a changed checkout
	Go       string `json:"go" yaml:"go"`             // for example "go1.26.8"
	Platform string `json:"platform" yaml:"platform"` // for example "linux/amd64"
}

// Version returns the short version: that of the release build, otherwise the module
// version, otherwise "devel".
func Version() string { return ReadBuild().Version }

// ReadBuild reads the build information that the linker and the go command put into the
// binary.
func ReadBuild() Build {
	info, _ := debug.ReadBuildInfo() // nil in a binary built without module support
	return readBuild(version, info)
}

func readBuild(override string, info *debug.BuildInfo) Build {
	build := Build{Version: override, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if build.Version == "" && info.Main.Version != "(devel)" {
			build.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				build.Revision = setting.Value[:min(12, len(setting.Value))]
			case "vcs.time":
				build.Time = setting.Value
			case "vcs.modified":
				build.Modified = setting.Value == "true"
			}
		}
	}
	if build.Version == "" {
		build.Version = "devel"
	}
	return build
}

// String returns one line, for example "v1.2.3 (1a2b3c4d5e6f, go1.26.8, linux/amd64)".
func (b Build) String() string {
	details := make([]string, 0, 4)
	if b.Revision != "" {
		details = append(details, b.Revision)
	}
	if b.Modified {
		details = append(details, "modified")
	}
	details = append(details, b.Go, b.Platform)
	return fmt.Sprintf("%s (%s)", b.Version, strings.Join(details, ", "))
}
