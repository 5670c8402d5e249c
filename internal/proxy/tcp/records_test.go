package tcp_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
)

// recorded are the fields of a record that do not change from run to run.
type recorded struct {
	Service   string  `json:"ringway.service"`
	From      string  `json:"ringway.forwarded_by"`
	Caller    string  `json:"ringway.caller"`
	Client    string  `json:"client.address"`
	Transport string  `json:"network.transport"`
	Protocol  string  `json:"network.protocol.name"`
	Version   string  `json:"network.protocol.version"`
	Method    string  `json:"http.request.method"`
	Path      string  `json:"url.path"`
	Status    int     `json:"http.response.status_code"`
	Outcome   string  `json:"ringway.outcome"`
	Code      string  `json:"error.type"`
	In        float64 `json:"http.request.body.size"`
	Out       float64 `json:"http.response.body.size"`
	Tunnel    bool    `json:"ringway.tunnel"`
	Sampled   bool    `json:"ringway.sampled"`
}

// records returns the records of a file by the bytes that their clients sent.
func records(t *testing.T, file string) (found map[string]recorded, ids map[string]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found, ids = map[string]recorded{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		var one recorded
		var id struct {
			ID string `json:"ringway.request.id"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			continue // not whole yet
		}
		_ = json.Unmarshal([]byte(line), &id)
		kind := fmt.Sprint(one.Code, one.In)
		found[kind], ids[kind] = one, id.ID
	}
	return found, ids
}

func TestASessionHasOneRecordAtEachRelay(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			dir := t.TempDir()
			logged := func(change func(*relay.Settings)) func(*relay.Settings) {
				return func(s *relay.Settings) {
					if change != nil {
						change(s)
					}
					s.RequestLog = filepath.Join(dir, string(s.Role)+".log")
					s.Circuit.Mode = "on"
				}
			}
			f.relay("r1", logged(nil))
			f.relay("g1", logged(gate))
			f.worker("w1", serveTCP(t, echo), "")
			f.session("r1")
			conn := f.session("g1")
			if err := echoes(conn, "seventeen bytes.."); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			const session = "23" // "ready?" and the 17 bytes
			client := conn.LocalAddr().(*net.TCPAddr).IP.String()
			first := recorded{
				Service: "db", Caller: client, Client: client, Transport: "tcp", Status: 101, Outcome: "1xx",
				In: 23, Out: 23, Tunnel: true, Sampled: true,
			}
			second := first
			second.From, second.Caller = "g1", "" // only the first relay knows the caller
			procs.Await(t, "the session is recorded by both", func() bool {
				atGate, _ := records(t, filepath.Join(dir, "gate.log"))
				atRelay, _ := records(t, filepath.Join(dir, "relay.log"))
				return atGate[session].In > 0 && atRelay[session].In > 0
			})
			atGate, gateIDs := records(t, filepath.Join(dir, "gate.log"))
			atRelay, relayIDs := records(t, filepath.Join(dir, "relay.log"))
			if got := atGate[session]; !reflect.DeepEqual(got, first) {
				t.Errorf("at the gate\n%+v, want\n%+v", got, first)
			}
			if got := atRelay[session]; !reflect.DeepEqual(got, second) {
				t.Errorf("at the relay\n%+v, want\n%+v", got, second)
			}
			if gateIDs[session] == "" || gateIDs[session] != relayIDs[session] {
				t.Errorf("the session has the IDs %q and %q", gateIDs[session], relayIDs[session])
			}

			_, _ = tls.Dial("tcp", f.passthrough("g1"), &tls.Config{ServerName: "absent.example.com", InsecureSkipVerify: true})
			_, _ = tls.Dial("tcp", f.passthrough("g1"), &tls.Config{ServerName: "absent.example.net", InsecureSkipVerify: true})
			refused := recorded{Caller: client, Client: client, Transport: "tcp", Outcome: "failed", Sampled: true}
			unknown, unnamed := refused, refused
			unknown.Service, unknown.Code = "absent", "unknown_service"
			unnamed.Code = "bad_request"
			procs.Await(t, "refused sessions are recorded", func() bool {
				atGate, _ = records(t, filepath.Join(dir, "gate.log"))
				return atGate["unknown_service0"].Code != "" && atGate["bad_request0"].Code != ""
			})
			for kind, want := range map[string]recorded{"unknown_service0": unknown, "bad_request0": unnamed} {
				if got := atGate[kind]; !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\n%+v, want\n%+v", kind, got, want)
				}
			}
		})
	}
}
