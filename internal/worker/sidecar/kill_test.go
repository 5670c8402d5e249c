//go:build unix

package sidecar

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
)

// serviceProcess is set in the environment of a process that is to be a service.
const serviceProcess = "RINGWAY_TEST_SERVICE"

// beService answers requests until it is killed. Its first line names where it
// listens, and each further one what it has begun to execute.
func beService() error {
	ln, err := net.Listen("tcp", anyPort)
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	var mu sync.Mutex
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		fmt.Println(r.Method, r.Header.Get("X-Id")) // a pipe keeps it whatever happens next
		mu.Unlock()
		if r.Header.Get("X-Do") == "hang" {
			<-r.Context().Done()
		}
	})}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv.Serve(ln)
}

// process is a service in a process of its own.
type process struct {
	address string
	command *exec.Cmd
	began   chan string // gets what the process begins to execute
	ended   chan struct{}
}

func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{command: exec.Command(os.Args[0]), began: make(chan string, 1<<16), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), serviceProcess+"=1")
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		p.address = lines.Text()
	}
	go func() {
		defer close(p.ended)
		defer close(p.began)
		for lines.Scan() {
			p.began <- lines.Text()
		}
		_ = p.command.Wait() // it was killed
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as the kernel does: it can do nothing about it.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

func TestAKilledServiceLosesNothingThatIsSafeToRepeatAndNoPOSTRunsTwice(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			r := f.relay("r1", false)
			processes := []*process{startProcess(t), startProcess(t), startProcess(t)}
			var sidecars []*running
			for n, p := range processes {
				sidecars = append(sidecars, f.worker(fmt.Sprint("w", n), advertise.Service{Name: "echo", Address: p.address, Protocol: protocol}))
			}
			r.settled(t, "echo", len(processes))

			// Two requests that are being executed when the process dies.
			client := clients(t)["http/1.1"]
			dying := processes[0]
			held := map[string]<-chan reply{}
			for n := 0; n < 100 && len(held) < 2; n++ {
				for _, method := range []string{"GET", "POST"} {
					if held[method] != nil {
						continue
					}
					id := fmt.Sprint("held-", n)
					req := r.request(t, method, "echo", "/", nil)
					req.Header.Set("X-Id", id)
					req.Header.Set("X-Do", "hang")
					got := background(client, req)
					select {
					case <-dying.began:
						held[method] = got
					case <-processes[1].began:
					case <-processes[2].began:
					}
				}
			}

			var mu sync.Mutex
			type failure struct {
				method string
				n      int
				answer string
			}
			var failures []failure
			var load sync.WaitGroup
			const afterwards = 150 // the requests from here on begin when the process is gone
			warm, killed := make(chan struct{}, 4), make(chan struct{})
			for c := range 4 {
				load.Go(func() {
					for n := range 200 {
						if n == 50 {
							warm <- struct{}{}
						}
						method, body := "GET", io.Reader(nil)
						if n%2 == 0 {
							method, body = "POST", strings.NewReader("small body")
						}
						if n == afterwards {
							<-killed
						}
						req := r.request(t, method, "echo", "/", body)
						id := fmt.Sprintf("%d-%d", c, n)
						req.Header.Set("X-Id", id)
						resp, err := client.Do(req)
						if err != nil {
							t.Error(err)
							continue
						}
						answer, _ := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if resp.StatusCode != 200 {
							mu.Lock()
							failures = append(failures, failure{method, n, string(answer)})
							mu.Unlock()
						}
					}
				})
			}
			for range 4 {
				<-warm
			}
			dying.kill()
			if protocol == advertise.H2C {
				// The connection of HTTP/2 is shared: who uses it before its end is
				// read has sent something.
				pool := (*sidecars[0].services.Load())["echo"].pool
				procs.Await(t, "the sidecar has seen the end of its connection", func() bool { return pool.Stats().Open == 0 })
			}
			close(killed)
			load.Wait()

			executed := map[string]int{}
			for line := range dying.began {
				executed[line]++
			}
			got := within(t, held["POST"], "the POST that was being executed")
			if got.status != http.StatusBadGateway || !strings.Contains(got.body, "did not answer") {
				t.Errorf("the POST that was being executed: %+v", got)
			}
			// The GET hangs elsewhere now: it was repeated.
			for line := ""; !strings.HasPrefix(line, "GET held-"); executed[line]++ {
				select {
				case line = <-processes[1].began:
				case line = <-processes[2].began:
				case got := <-held["GET"]:
					t.Fatalf("the GET that was being executed was not repeated: %+v", got)
				case <-time.After(patience):
					t.Fatal("the GET that was being executed was not repeated")
				}
			}
			for _, p := range processes[1:] {
				p.kill()
				for line := range p.began {
					executed[line]++
				}
			}
			within(t, held["GET"], "the GET without a client")
			// It is unknown whether a process that dies has read the bytes sent to it.
			for _, f := range failures {
				if f.method != "POST" || f.n >= afterwards || !strings.Contains(f.answer, "which had sent it the request") {
					t.Errorf("a request was lost that is safe to repeat: %+v", f)
				}
			}
			for id, n := range executed {
				if strings.HasPrefix(id, "POST ") && n > 1 {
					t.Errorf("%s ran %d times", id, n)
				}
			}
			t.Logf("%d POSTs were lost that the service may have executed", len(failures))
		})
	}
}
