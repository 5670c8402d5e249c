package health

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// streamID is the id of the only call on a connection.
const streamID = 1

// grpcAnswer is the answer on the stream, trailers included.
type grpcAnswer struct {
	httpStatus, contentType string
	status, message         string // grpc-status, grpc-message; empty for a GET
	body                    []byte
}

func (c Check) askGRPC(conn io.ReadWriter) *failure {
	answer, failed := c.call(conn, healthRequest(c.Service), [][2]string{
		{":method", "POST"}, {":scheme", c.scheme()}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", c.Address},
		{"te", "trailers"}, {"content-type", "application/grpc"}, {"user-agent", userAgent},
	})
	if failed != nil {
		return failed
	}
	return answer.classify(c.Service)
}

// call sends one request over conn and reads the answer. It writes and reads the few frames
// itself, so that the worker needs no gRPC client and the probe no goroutines. An answer that
// is too long for a probe is cut off.
func (c Check) call(conn io.ReadWriter, body []byte, head [][2]string) (answer grpcAnswer, _ *failure) {
	out := bufio.NewWriter(conn)
	in := &answerReader{conn: conn}
	framer := http2.NewFramer(out, in)
	framer.SetMaxReadFrameSize(16 << 10) // the smallest limit that the RFC allows
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = 16 << 10

	_, preface := io.WriteString(out, http2.ClientPreface)
	if err := errors.Join(
		preface,
		framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: encode(head), EndHeaders: true, EndStream: body == nil}),
	); err != nil {
		return answer, c.broken("answer", err)
	}
	if body != nil {
		_ = framer.WriteData(streamID, true, body) // it is buffered
	}
	if err := out.Flush(); err != nil {
		return answer, c.broken("answer", err)
	}
	answer, err := readGRPC(framer, out)
	var refused *failure
	switch {
	case errors.As(err, &refused):
		return answer, refused
	case in.err == errTooLong && c.Kind == HTTP && answer.httpStatus != "":
		return answer, nil
	case err != nil && c.Kind == HTTP:
		return answer, c.unreadable(in, "answer", "HTTP/2", err)
	case err != nil:
		return answer, c.unreadable(in, "answer", "gRPC over HTTP/2", err)
	}
	_ = errors.Join(framer.WriteGoAway(0, http2.ErrCodeNo, nil), out.Flush()) // optional: the connection closes anyway
	return answer, nil
}

// encode returns the header block of a request.
func encode(head [][2]string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range head {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // writing to a buffer cannot fail
	}
	return block.Bytes()
}

// readGRPC reads frames until the stream ends and replies to those that need a reply. An
// error of a reply is ignored, because the next read reports it.
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

// hungUp explains an end of the call by GOAWAY or RST_STREAM.
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

// Both messages of grpc.health.v1 have a single field with this number: the name in the
// request, the state in the response.
const onlyField = 1

// healthRequest returns a HealthCheckRequest in a gRPC frame: a flag (not compressed), the
// length in four bytes, the message.
func healthRequest(service string) []byte {
	var message []byte
	if service != "" {
		message = protowire.AppendString(protowire.AppendTag(message, onlyField, protowire.BytesType), service)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Serving states of HealthCheckResponse.
const (
	stateServing        = 1
	stateNotServing     = 2
	stateServiceUnknown = 3
)

// errField replaces the errors of package protowire, whose kind of spaces changes from
// build to build.
var errField = errors.New("a field is cut off or malformed")

// decodeHealth decodes the state from a framed HealthCheckResponse. Unknown fields are
// skipped, and a missing state is 0.
func decodeHealth(body []byte) (state int32, err error) {
	if len(body) < 5 || body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return 0, fmt.Errorf("%d bytes are not one uncompressed message", len(body))
	}
	for message := body[5:]; len(message) > 0; {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, errField
		}
		if !number.IsValid() {
			return 0, fmt.Errorf("field number %d", number)
		}
		message = message[n:]
		if number == onlyField && kind == protowire.VarintType {
			var value uint64
			value, n = protowire.ConsumeVarint(message)
			state = int32(value) // an enum; protobuf truncates a longer varint
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return 0, errField
		}
		message = message[n:]
	}
	return state, nil
}

// Status codes of gRPC that need their own remedy.
const (
	codeOK               = 0
	codeNotFound         = 5
	codePermissionDenied = 7
	codeUnimplemented    = 12
	codeUnauthenticated  = 16
)

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
	"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// classify returns why the answer does not mean that service serves; nil if it does.
func (a grpcAnswer) classify(service string) *failure {
	if a.status == "" && a.httpStatus != "200" {
		return &failure{result: resultStatus, came: fmt.Sprintf("answered HTTP %.20q without a gRPC status", a.httpStatus), remedy: "this is not a gRPC server; correct the kind of check or the address"}
	}
	code, err := strconv.ParseUint(a.status, 10, 32)
	if err != nil || !strings.HasPrefix(a.contentType, "application/grpc") {
		return garbage("gRPC", fmt.Errorf("grpc-status %.20q, content-type %.80q", a.status, a.contentType))
	}
	if code != codeOK {
		return a.refusal(code, service)
	}
	state, err := decodeHealth(a.body)
	if err != nil {
		return garbage("a HealthCheckResponse", err)
	}
	switch state {
	case stateServing:
		return nil
	case stateNotServing:
		return &failure{result: resultNotServing, came: "NOT_SERVING", remedy: "the service itself answered this; see its log"}
	case stateServiceUnknown:
		return unknownService("SERVICE_UNKNOWN", service)
	}
	return &failure{result: resultStatus, came: fmt.Sprintf("serving status %d", state), remedy: "only SERVING (1) counts; the service must set its status"}
}

// refusal explains a call with an error status.
func (a grpcAnswer) refusal(code uint64, service string) *failure {
	name := "code " + strconv.FormatUint(code, 10)
	if code < uint64(len(codeNames)) {
		name = codeNames[code]
	}
	text, err := url.PathUnescape(a.message) // grpc-message is percent-encoded
	if err != nil {
		text = a.message
	}
	came := fmt.Sprintf("%s %.120q", name, text)
	switch code {
	case codeUnimplemented:
		return &failure{result: resultNoHealth, came: came, remedy: "the server has no health service; register grpc.health.v1.Health in it, or use a tcp check"}
	case codeNotFound:
		return unknownService(came, service)
	case codePermissionDenied, codeUnauthenticated:
		return &failure{result: resultStatus, came: came, remedy: "the health service must answer without credentials"}
	}
	return &failure{result: resultStatus, came: came, remedy: "see the log of the service"}
}

func unknownService(came, service string) *failure {
	return &failure{result: resultUnknown, came: came, remedy: fmt.Sprintf("the server does not know the service %q; set its status in the health service, or correct the name (empty asks for the server)", service)}
}
