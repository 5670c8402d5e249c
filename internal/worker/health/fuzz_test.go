package health

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// canned is a connection on which these bytes come, whatever is asked.
type canned struct{ io.Reader }

func (canned) Write(p []byte) (int, error) { return len(p), nil }

// explained fails unless f could be shown to an operator.
func explained(t *testing.T, f *failure) {
	t.Helper()
	if f.result == "" || f.came == "" || f.remedy == "" {
		t.Errorf("%+v lacks something", f)
	}
	if text := f.Error(); len(text) > 2000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q cannot be printed on a line", text)
	}
}

func FuzzHTTPAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 503 No\r\n\r\n\x1b[2J"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if failed := (Check{Kind: HTTP, Address: "h:1", Host: "h", Path: "/"}).askHTTP(canned{bytes.NewReader(answer)}); failed != nil {
			explained(t, failed)
		} else if !bytes.Contains(answer, []byte("HTTP/1.")) {
			t.Errorf("%q is taken for a good answer", answer)
		}
	})
}

func FuzzHTTP2Answer(f *testing.F) {
	for _, status := range []string{"200", "503", "x"} {
		var answer bytes.Buffer
		server := newFrames(&answer, nil)
		_ = server.WriteSettings()
		server.headers(false, ":status", "103")
		server.headers(false, ":status", status)
		_ = server.WriteData(streamID, true, []byte("\x1b[2J"))
		f.Add(answer.Bytes())
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if failed := (Check{Kind: HTTP, Address: "h:1", Host: "h", Path: "/", HTTP2: true}).askHTTP2(canned{bytes.NewReader(answer)}); failed != nil {
			explained(t, failed)
		}
	})
}

func FuzzGRPCAnswer(f *testing.F) {
	for _, state := range []int32{stateServing, stateNotServing} {
		var answer bytes.Buffer
		server := newFrames(&answer, nil)
		_ = server.WriteSettings()
		_ = server.WritePing(false, [8]byte{})
		server.health(healthResponse(state))
		f.Add(answer.Bytes())
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if failed := (Check{Kind: GRPC, Address: "h:1"}).askGRPC(canned{bytes.NewReader(answer)}); failed != nil {
			explained(t, failed)
		} else if !bytes.Contains(answer, []byte{8}) { // the tag of the state
			t.Errorf("%q is taken for SERVING", answer)
		}
	})
}

// The generated decoder of the protocol is the reference.
func FuzzHealthMessage(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Add([]byte{8, 2, 8, 1})                          // the last one counts
	f.Add([]byte{8, 0x81, 0x80, 0x80, 0x80, 0x10})     // longer than an enum
	f.Add([]byte{10, 1, 1, 0x13, 8, 2, 0x14, 0x18, 1}) // another type, a group, another field
	f.Fuzz(func(t *testing.T, message []byte) {
		state, err := decodeHealth(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
		var want grpc_health_v1.HealthCheckResponse
		if wantErr := proto.Unmarshal(message, &want); (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: %v, the reference says %v", message, err, wantErr)
		}
		if err == nil && state != int32(want.Status) {
			t.Fatalf("%x: %d, the reference says %d", message, state, want.Status)
		}
	})
}

func FuzzHealthRequest(f *testing.F) {
	f.Add("")
	f.Add("chat.Chat")
	f.Fuzz(func(t *testing.T, service string) {
		if (Check{Kind: GRPC, Service: service}).withDefaults().problems() != nil {
			return
		}
		var got grpc_health_v1.HealthCheckRequest
		if err := proto.Unmarshal(healthRequest(service)[5:], &got); err != nil || got.Service != service {
			t.Fatalf("%q arrives as %q, %v", service, got.Service, err)
		}
	})
}
