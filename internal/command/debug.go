package command

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
)

const (
	// bundleServices limits the services whose details go into a bundle.
	bundleServices = 200
	// bundleFile limits the size of one answer in bytes.
	bundleFile = 64 << 20
)

// DebugCommand is `debug`: it collects data for the analysis of a problem.
func DebugCommand(program string) *cobra.Command {
	c := &cobra.Command{Use: "debug", Short: "collect data for the analysis of a fault", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(bundleCommand(program))
	return c
}

func bundleCommand(program string) *cobra.Command {
	c := &cobra.Command{Use: "bundle", Short: "write diagnostics of the running " + program + " into one file", Args: cobra.NoArgs,
		Long: "The bundle has the version, the settings in effect without their secrets, readiness,\n" +
			"members, services, plans, a check of the fleet (of a relay), metrics, where every\n" +
			"goroutine is, and some seconds of the log at level debug. It has no keys, tokens or\n" +
			"certificates, and nothing of requests; names of members and services and addresses\n" +
			"are in it. MANIFEST.json lists the files, and those that are missing, and why.",
		Example: fmt.Sprintf("  %[1]s debug bundle -o %[1]s.tar.gz\n  %[1]s debug bundle -o %[1]s.tar.gz --log-for 30s", program)}
	call := callOf(program, c.Flags(), "")
	call.output = ""
	// -o is the path of the file here, not the output form.
	form := c.Flags().Lookup("output")
	form.Usage, form.DefValue = "file to write; it must not exist", ""
	logFor := c.Flags().Duration("log-for", 2*time.Second, "how long the log is read; 0: not at all")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case call.output == "":
			return errors.New("--output: required: the file to write, such as " + program + ".tar.gz")
		case *logFor < 0 || *logFor > 10*time.Minute:
			return fmt.Errorf("--log-for %v: allowed are 0 to 10m", *logFor)
		}
		b := &bundle{call: call, took: time.Now().UTC()}
		if err := b.gather(cmd.Context(), *logFor); err != nil {
			return err
		}
		if err := b.write(call.output); err != nil {
			return fmt.Errorf("--output %q: %w", call.output, err)
		}
		for _, f := range b.files {
			if f.Error != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "not in it: %s: %s\n", process.Printable(f.Name), process.Printable(f.Error))
			}
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %d files\n", call.output, b.collected()+1)
		return err
	}
	return c
}

// bundle is the collected data.
type bundle struct {
	call  *adminCall
	took  time.Time
	files []bundled
}

// bundled is one file of a bundle, as its manifest lists it.
type bundled struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	// Error is the reason why the file is missing.
	Error string `json:"error,omitempty"`
	data  []byte
}

func (b *bundle) add(name string, data []byte, err error) {
	f := bundled{Name: name}
	if err != nil {
		f.Error = err.Error()
	} else {
		sum := sha256.Sum256(data)
		f.Size, f.SHA256, f.data = len(data), hex.EncodeToString(sum[:]), data
	}
	b.files = append(b.files, f)
}

func (b *bundle) collected() (n int) {
	for _, f := range b.files {
		if f.Error == "" {
			n++
		}
	}
	return n
}

// gather requests all files. It fails only if the process answers no request.
func (b *bundle) gather(ctx context.Context, logFor time.Duration) error {
	version, err := b.get(ctx, "/api/v1/version")
	if err != nil {
		return err
	}
	b.add("version.json", version, nil)
	paths := []struct{ name, path string }{
		{"config.json", "/api/v1/config"}, {"readyz.json", "/readyz"}, {"members.json", "/api/v1/members"},
		{"departures.json", "/api/v1/departures"}, {"checksum.json", "/api/v1/checksum"}, {"services.json", "/api/v1/services"},
	}
	if b.call.process == "relay" {
		paths = append(paths, struct{ name, path string }{"check.json", "/api/v1/check"}, struct{ name, path string }{"shared-key.json", "/api/v1/shared-key"})
	}
	var services []byte
	for _, p := range paths {
		data, err := b.get(ctx, p.path)
		if p.name == "services.json" {
			services = data
		}
		b.add(p.name, data, err)
	}
	if b.call.process == "relay" {
		b.gatherServices(ctx, services)
	}
	for _, p := range []struct{ name, path string }{{"metrics.txt", "/metrics?all"}, {"goroutines.txt", "/api/v1/goroutines"}} {
		data, err := b.get(ctx, p.path)
		b.add(p.name, data, err)
	}
	if logFor > 0 {
		var log bytes.Buffer
		reading, stop := context.WithTimeout(ctx, logFor)
		defer stop()
		err := b.call.follow(reading, "monitor?level=debug", func(line []byte) error {
			log.Write(line)
			log.WriteByte('\n')
			if log.Len() > bundleFile {
				return errors.New("the log is longer than a bundle may be")
			}
			return nil
		})
		if reading.Err() != nil {
			err = nil // the time limit of the log ended the request
		}
		b.add("log.ndjson", log.Bytes(), err)
	}
	return ctx.Err()
}

func (b *bundle) gatherServices(ctx context.Context, text []byte) {
	var list api.Services
	if json.Unmarshal(text, &list) != nil {
		return // services.json has the error
	}
	for i, s := range list.Services {
		if i == bundleServices {
			b.add("services/", nil, fmt.Errorf("%d services more are left out", len(list.Services)-bundleServices))
			return
		}
		for _, what := range []string{"", "plan"} {
			service := url.PathEscape(s.Service) // so that no name of a file leads out of the bundle
			name, path := "services/"+service+".json", "/api/v1/services/"+service
			if what != "" {
				name, path = "services/"+service+"."+what+".json", path+"/"+what
			}
			data, err := b.get(ctx, path)
			b.add(name, data, err)
		}
	}
}

// get requests one file. A 503 of /readyz is a valid answer.
func (b *bundle) get(ctx context.Context, path string) ([]byte, error) {
	resp, text, err := b.call.ask(ctx, http.MethodGet, path, nil)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusServiceUnavailable && path == "/readyz":
		return text, nil
	}
	var failed api.Error
	if json.Unmarshal(text, &failed) != nil || failed.Error == "" {
		return nil, b.call.misdirected(resp, text)
	}
	return nil, errors.New(failed.Error)
}

// manifest is the content of MANIFEST.json.
type manifest struct {
	Process string        `json:"process"`
	Addr    string        `json:"admin_addr"`
	Time    time.Time     `json:"time"`
	By      process.Build `json:"gathered_by"`
	Files   []bundled     `json:"files"`
}

func (b *bundle) write(path string) error {
	list, err := document(manifest{Process: b.call.process, Addr: b.call.addr(), Time: b.took, By: process.ReadBuild(), Files: b.files})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(b.archive(f, list), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (b *bundle) archive(out io.Writer, list []byte) error {
	zip := gzip.NewWriter(out)
	w := tar.NewWriter(zip)
	put := func(name string, data []byte) error {
		err := w.WriteHeader(&tar.Header{Name: "ringway/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.took})
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	if err := put("MANIFEST.json", list); err != nil {
		return err
	}
	for _, f := range b.files {
		if f.Error == "" {
			if err := put(f.Name, f.data); err != nil {
				return err
			}
		}
	}
	return errors.Join(w.Close(), zip.Close())
}
