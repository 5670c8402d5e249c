//go:build unix

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// curlVariable makes this test binary curl, so that the commands of a page need no other
// program than Go and a shell.
const curlVariable = "E2E_CURL"

// curl prints the body of an answer, as curl --cacert FILE URL does. It asks again until the
// fleet is ready.
func curl(args []string) int {
	if len(args) != 3 || args[0] != "--cacert" {
		fmt.Fprintln(os.Stderr, "not a command of the page:", args)
		return 2
	}
	authority, err := os.ReadFile(args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr) // names below localhost are this machine for curl
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for every := time.NewTicker(100 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[2], nil)
		if err == nil {
			err = printBody(client, req)
		}
		if err == nil {
			return 0
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

func printBody(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err == nil {
		_, err = os.Stdout.Write(body)
	}
	return err
}

// pageBlock is a block of commands that a page marks with <!-- run -->, and the block with the
// answer that follows before the next one, if there is one.
var pageBlock = regexp.MustCompile("(?s)<!-- run -->\n```sh\n(.*?)```\n([^`]*```\n(.*?)```)?")

// varying are the parts of an answer that differ between two runs: numbers, and the widths of
// the columns.
var varying = regexp.MustCompile(`\b[0-9a-f]*[0-9][0-9a-fx.:TZ-]*`)

func constant(answer string) string {
	return strings.Join(strings.Fields(varying.ReplaceAllString(answer, "#")), " ")
}

func TestTheCommandsOfThePageAboutHTTPSLeadToAnExplainedRequest(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "https.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := pageBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 || !strings.Contains(string(page), "\nmake build && go build -o bin/ ./deploy/echo\n") {
		t.Fatalf("%d blocks of commands are marked", len(blocks))
	}
	dir := t.TempDir()
	if err := procs.Build(root, filepath.Join(dir, "bin"), false, "./cmd/relay", "./cmd/worker", "./deploy/echo"); err != nil {
		t.Fatal(err)
	}
	// Other tests may use the ports of the page.
	admin, gossip, https := freeAddr(t), freeAddr(t), freeAddr(t)
	_, port, _ := net.SplitHostPort(https)
	free := strings.NewReplacer(
		"127.0.0.1:7400", gossip, "127.0.0.1:7443", https, ":7443", ":"+port, "127.0.0.1:9001", freeAddr(t),
		"relay run", "relay run --gossip-addr "+gossip+" --peer-addr "+freeAddr(t)+" --admin-addr "+admin,
		"worker run", "worker run --gossip-addr "+freeAddr(t)+" --admin-addr "+freeAddr(t),
		"explain-request", "explain-request --admin-addr "+admin,
		" &\n", " &\npids=\"$pids $!\"\n", // dash has no jobs -p in $(…)
	)
	const end = "--- end of a block ---\n"
	script := `set -e
trap 'kill $pids 2>/dev/null || true; wait' EXIT
curl() { ` + curlVariable + `=1 "$TEST_BINARY" "$@"; }
tail() { # a busy machine may write the line of the request later
	for n in $(seq 300); do grep -q '"http.response.status_code":200' requests.json && break; sleep 0.1; done
	command tail "$@"
}
`
	for _, block := range blocks {
		script += free.Replace(block[1]) + "echo '" + strings.TrimSpace(end) + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // what the page promises
	defer cancel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(ctx, "sh", "-c", script)
	shell.Dir, shell.Env, shell.WaitDelay = dir, append(os.Environ(), "TEST_BINARY="+binary), time.Minute
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGTERM) } // it ends the others
	var messages strings.Builder
	shell.Stderr = &messages
	out, err := shell.Output()
	if err != nil {
		relay, _ := os.ReadFile(filepath.Join(dir, "relay.log"))
		t.Fatalf("%v\n%s\n%s\n%s", err, out, &messages, relay)
	}
	answers := strings.Split(string(out), end)
	for i, block := range blocks {
		if block[2] == "" {
			continue
		}
		if constant(answers[i]) != constant(block[3]) {
			t.Errorf("the page prints other answers to\n%s\n%s\nwant\n%s", block[1], answers[i], block[3])
		}
	}
}
