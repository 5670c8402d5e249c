package health

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Both messages of grpc.health.v1 have one field with this number: the name in
// the request, the state in the response.
const onlyField = 1

// healthRequest is a HealthCheckRequest in a gRPC frame: a flag (not compressed),
// the length in four bytes, the message.
func healthRequest(service string) []byte {
	var message []byte
	if service != "" {
		message = protowire.AppendString(protowire.AppendTag(message, onlyField, protowire.BytesType), service)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// serving states of HealthCheckResponse.
const (
	stateServing        = 1
	stateNotServing     = 2
	stateServiceUnknown = 3
)

// errField replaces the errors of package protowire, which have blanks of a kind that
// changes from build to build.
var errField = errors.New("a field is cut off or malformed")

// decodeHealth reads the state out of a framed HealthCheckResponse. Unknown fields
// are skipped, and a state that is not there is 0.
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
			state = int32(value) // an enum; a longer varint is cut, as protobuf says
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

// judge says why the answer does not mean that service serves; nil if it does.
func (a grpcAnswer) judge(service string) *failure {
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
		return &failure{result: resultNotServing, came: "NOT_SERVING", remedy: "the service says so itself; see its log"}
	case stateServiceUnknown:
		return unknownService("SERVICE_UNKNOWN", service)
	}
	return &failure{result: resultStatus, came: fmt.Sprintf("serving status %d", state), remedy: "only SERVING (1) counts; let the service set its status"}
}

// refusal explains a call that failed as a call.
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
		return &failure{result: resultStatus, came: came, remedy: "let the health service answer without credentials"}
	}
	return &failure{result: resultStatus, came: came, remedy: "see the log of the service"}
}

func unknownService(came, service string) *failure {
	return &failure{result: resultUnknown, came: came, remedy: fmt.Sprintf("the server does not know the service %q; set its status in the health service, or correct the name (empty asks for the server)", service)}
}
