package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
)

// CheckCommand is `check`: the problems of the fleet, as one relay sees them.
func CheckCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "check the fleet, and report each fault with its remedy", Args: cobra.NoArgs,
		Long: "One relay asks all others what they are set to, see and are connected to, tries to\n" +
			"reach members over UDP, and compares. What may be over in a moment, because news\n" +
			"travels, is checked three times before it is reported. Nothing is changed.\n\n" +
			"Every finding has the fault, the reason why that matters, the remedy, and where to read\n" +
			"more: ✓ all is well, ! a margin is smaller than it should be, ✗ something is broken.\n\n" +
			"The exit code is 1 when something is broken, with --strict also for warnings.",
		Example: "  relay check\n  relay check --strict -o json | jq -r '.findings[] | select(.status != \"ok\") | .remedy'"}
	call := relayCall(c.Flags(), formTable, formJSON, formYAML)
	strict := c.Flags().Bool("strict", false, "end with exit code 1 for warnings, too")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var report api.Report
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			text, err := call.fetch(ctx, http.MethodGet, "check", nil, &report)
			if err == nil && (report.Failures > 0 || *strict && report.Warnings > 0) {
				err = fmt.Errorf("check: %s", tally(&report))
			}
			return text, err
		}, func(p *page) { checkText(p, &report) })
	}
	return c
}

// marks are the first characters of a finding in the output.
var marks = map[api.Status]cell{api.OK: {"✓", styleGood}, api.Warning: {"!", styleFair}, api.Failed: {"✗", styleBad}}

// What has scrolled away is not read, so a report fits a terminal of usual height, and one with a
// failure also a small one.
const checkRows, smallRows, checkColumns = 40, 24, 100

// checkText writes what is wrong first, in the order of the checks, which begin with what
// explains the others; what another finding explains is one line. The checks without a finding
// follow, by name if all would not fit.
func checkText(p *page, r *api.Report) {
	var wrong, fine strings.Builder
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
	}
	var names []string
	for _, f := range r.Findings {
		mark := marks[f.Status]
		if mark.text == "" {
			mark = cell{"?", styleFair} // from a newer version
		}
		if p.colour {
			mark.text = string(mark.style) + mark.text + reset
		}
		b := &wrong
		if f.Status == api.OK {
			b, names = &fine, append(names, f.Check)
		}
		fmt.Fprintf(b, "%s %-*s  %s", mark.text, width, process.Printable(f.Check), process.Printable(f.Text))
		if f.FollowsFrom != "" {
			fmt.Fprintf(b, " (follows from %s)\n", process.Printable(f.FollowsFrom))
			continue
		}
		b.WriteString("\n")
		for _, more := range []struct{ name, text string }{{"why", f.Cause}, {"do", f.Remedy}, {"see", f.Page}} {
			if more.text != "" {
				fmt.Fprintf(b, "  %*s  %-3s  %s\n", width, "", more.name, process.Printable(more.text))
			}
		}
	}
	text, most := fine.String(), checkRows
	if r.Failures > 0 {
		most = smallRows
	}
	if screenRows(wrong.String()+text)+2 > most {
		mark := marks[api.OK].text
		if p.colour {
			mark = string(styleGood) + mark + reset
		}
		text = fmt.Sprintf("%s %s\n", mark, process.Printable(strings.Join(names, ", ")))
	}
	fmt.Fprintf(p, "%s%s\n", wrong.String(), text)
	p.line("%s: %s", r.Relay, tally(r))
}

// screenRows returns how many rows of a terminal a text takes.
func screenRows(text string) (n int) {
	for line := range strings.Lines(text) {
		n += max(1, (utf8.RuneCountInString(line)-2+checkColumns)/checkColumns)
	}
	return n
}

// tally counts the findings, and those that another explains.
func tally(r *api.Report) string {
	fine, follow := 0, 0
	for _, f := range r.Findings {
		switch {
		case f.Status == api.OK:
			fine++
		case f.FollowsFrom != "":
			follow++
		}
	}
	text := fmt.Sprintf("%d fine, %d to watch, %d broken", fine, r.Warnings, r.Failures)
	switch {
	case follow == 1:
		text += " (1 of them follows from another)"
	case follow > 1:
		text += fmt.Sprintf(" (%d of them follow from others)", follow)
	}
	return text
}

// probeTimeout is shorter than the timeouts of container engines and orchestrators for a
// probe.
const probeTimeout = 2 * time.Second

// HealthCommand is `health`: one probe of the process on this host, for container engines
// and orchestrators, because an image from scratch has no curl.
func HealthCommand(process, port string) *cobra.Command {
	c := &cobra.Command{Use: "health", Short: "ask the running " + process + " whether it is alive or, with --ready, whether it should receive traffic", Args: cobra.NoArgs,
		Long: "The exit code is 0 when it does and 1 otherwise, with the reasons. A process that\n" +
			"lives and is not ready, because it finds no seed for example, must not be restarted."}
	addr, ready, timeout := "", false, probeTimeout
	overTLS, _ := settings.ParseBool(os.Getenv("RINGWAY_ADMIN_TLS")) // the process itself refuses a wrong value
	c.Flags().StringVar(&addr, "admin-addr", cmp.Or(os.Getenv("RINGWAY_ADMIN_ADDR"), "127.0.0.1:"+port),
		"address of the "+process+"'s admin API, or RINGWAY_ADMIN_ADDR; where that is every interface, loopback is asked")
	c.Flags().BoolVar(&ready, "ready", false, "ask /readyz instead of /healthz")
	c.Flags().BoolVar(&overTLS, "admin-tls", overTLS, "ask over TLS, as the process serves with --admin-tls, or RINGWAY_ADMIN_TLS=true")
	c.Flags().DurationVar(&timeout, "timeout", timeout, "time for the answer")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		path := "/healthz"
		if ready {
			path = "/readyz"
		}
		client, transport := direct(addr)
		client.Timeout = timeout
		scheme := "http"
		if overTLS {
			// The certificate is not verified: the probe sends no secret, and the answer is
			// only a status.
			transport.TLSClientConfig, scheme = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, "https"
		}
		req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, scheme+"://"+urlHost(addr)+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("ask the %s at %s: %w: is it running, and is --admin-addr right?", process, addr, err)
		}
		defer resp.Body.Close()
		return judgeHealth(cmd.OutOrStdout(), resp)
	}
	return c
}

// judgeHealth prints the status of the answer. An answer that is not from an admin API is
// an error.
func judgeHealth(w io.Writer, resp *http.Response) error {
	var answer api.Health
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil || answer.Status == "" {
		return fmt.Errorf("answered %s and nothing that an admin API answers: is --admin-addr right?", resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, strings.Join(answer.Reasons, "; "))
	}
	_, err := fmt.Fprintln(w, process.Printable(answer.Status))
	return err
}

// onThisHost returns the address at which a process that listens at addr is reached from
// the same host.
func onThisHost(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.HasPrefix(addr, settings.SocketPrefix) {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// urlHost returns the host of a URL for addr. A unix socket has no host name.
func urlHost(addr string) string {
	if strings.HasPrefix(addr, settings.SocketPrefix) {
		return "localhost"
	}
	return onThisHost(addr)
}
