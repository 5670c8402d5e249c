//go:build unix

package procs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Build builds programs of this module into dir. The packages are paths from the root of
// the module, as for go build; root is the relative path from the test to that root. Only
// programs with the race detector have cgo, which the detector needs and no release has.
func Build(root, dir string, race bool, packages ...string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = root
	if !race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// Ran is the result of a command.
type Ran struct {
	Binary         string
	Args           []string
	Code           int // -1: it did not start, or was killed after Patience
	Stdout, Stderr string
}

func (r Ran) String() string {
	return fmt.Sprintf("%s %s: exit code %d\n%s%s", r.Binary, strings.Join(r.Args, " "), r.Code, r.Stdout, r.Stderr)
}

// Run runs a command to its end.
func Run(cfg Config) Ran {
	cmd := cfg.command()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	r := Ran{Binary: cfg.Binary, Args: cfg.Args, Code: -1}
	if err := cmd.Start(); err != nil {
		r.Stderr = err.Error()
		return r
	}
	late := time.AfterFunc(Patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	_ = cmd.Wait() // the exit code has the result
	late.Stop()
	r.Code, r.Stdout, r.Stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	return r
}

// Ask sends a request and reads the whole answer. Without an answer the status is 0.
func Ask(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, body, nil
}

// Metrics returns the values of an answer of /metrics, by name and labels as exposed: the
// labels are in the order of the alphabet.
func Metrics(text string) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndex(line, " ") // the value of a label may contain blanks
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			values[line[:at]] = v
		}
	}
	return values
}
