package health

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// streamID is that of the only call on a connection.
const streamID = 1

// grpcAnswer is what came back on the stream, trailers included.
type grpcAnswer struct {
	httpStatus, contentType string
	status, message         string // grpc-status, grpc-message
	body                    []byte
}

// askGRPC makes one call over conn. It writes and reads the few frames itself:
// the worker stays without a gRPC client, and the probe without goroutines.
func (c Check) askGRPC(conn io.ReadWriter) *failure {
	out := bufio.NewWriter(conn)
	in := &answerReader{conn: conn}
	framer := http2.NewFramer(out, in)
	framer.SetMaxReadFrameSize(16 << 10) // the least that a peer may take for granted
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = 16 << 10

	_, preface := io.WriteString(out, http2.ClientPreface)
	if err := errors.Join(
		preface,
		framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: c.grpcHeaders(), EndHeaders: true}),
		framer.WriteData(streamID, true, healthRequest(c.Service)),
		out.Flush(),
	); err != nil {
		return c.broken("answer", err)
	}
	answer, err := readGRPC(framer, out)
	var refused *failure
	switch {
	case errors.As(err, &refused):
		return refused
	case err != nil:
		return c.unreadable(in, "answer", "gRPC over clear HTTP/2", err)
	}
	_ = errors.Join(framer.WriteGoAway(0, http2.ErrCodeNo, nil), out.Flush()) // a courtesy
	return answer.judge(c.Service)
}

func (c Check) grpcHeaders() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [...][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", c.Address},
		{"te", "trailers"}, {"content-type", "application/grpc"}, {"user-agent", userAgent},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // a buffer takes everything
	}
	return block.Bytes()
}

// readGRPC reads frames until the stream ends and answers those that want it. A
// reply that cannot be written is no matter: the next read says why.
func readGRPC(framer *http2.Framer, out *bufio.Writer) (answer grpcAnswer, err error) {
	for ended := false; !ended; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return answer, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = errors.Join(framer.WriteSettingsAck(), out.Flush())
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = errors.Join(framer.WritePing(true, frame.Data), out.Flush())
			}
		case *http2.GoAwayFrame:
			if frame.LastStreamID < streamID {
				return answer, hungUp("refused the connection with %v %.80q", frame.ErrCode, frame.DebugData())
			}
		case *http2.RSTStreamFrame:
			return answer, hungUp("ended the call with %v", frame.ErrCode)
		case *http2.MetaHeadersFrame:
			answer.take(frame.Fields)
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			answer.body = append(answer.body, frame.Data()...)
			ended = frame.StreamEnded()
		}
	}
	return answer, nil
}

// hungUp explains an end that HTTP/2 provides for.
func hungUp(format string, args ...any) *failure {
	return &failure{result: resultClosed, came: "the service " + fmt.Sprintf(format, args...), remedy: "see its log"}
}

func (a *grpcAnswer) take(fields []hpack.HeaderField) {
	for _, field := range fields {
		switch field.Name {
		case ":status":
			a.httpStatus = field.Value
		case "content-type":
			a.contentType = field.Value
		case "grpc-status":
			a.status = field.Value
		case "grpc-message":
			a.message = field.Value
		}
	}
}
