package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

// The ports of the backends: for requests over HTTP/1.1, for calls over HTTP/2, and for TCP
// sessions.
const (
	httpPort    = 18080
	callPort    = 18081
	sessionPort = 18082
)

// backends returns the listen addresses of the backends on a port.
func backends(port int) []string {
	var a []string
	for n := range workers {
		a = append(a, fmt.Sprintf("127.0.0.%d:%d", 11+n, port))
	}
	return a
}

// runBackends serves all backends in this process until the process is killed.
// The backends use as little CPU as possible, so that the proxy gets most of the
// machine: the path gives the size of the body, /none has no body, the response is cached,
// and headers are not parsed. Calls get an answer with trailers, sessions their bytes.
func runBackends() error {
	failed := make(chan error)
	calls := downstream.New(downstream.Config{Handler: http.HandlerFunc(answerCall), MaxStreams: 1000, Logger: slog.New(slog.DiscardHandler)})
	for n := range workers {
		requests, err1 := net.Listen("tcp", backends(httpPort)[n])
		forCalls, err2 := net.Listen("tcp", backends(callPort)[n])
		sessions, err3 := net.Listen("tcp", backends(sessionPort)[n])
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		go func() { failed <- serveEach(requests, serveBackend) }()
		go func() { failed <- calls.Serve(forCalls) }()
		go func() { failed <- serveEach(sessions, echoBytes) }()
	}
	return <-failed
}

// serveEach serves every connection on a goroutine of its own.
func serveEach(ln net.Listener, serve func(net.Conn)) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

var (
	message    = bytes.Repeat([]byte("x"), 4096)
	grpcType   = []string{"application/grpc"}
	grpcOK     = []string{"0"}
	grpcStatus = []string{"Grpc-Status"}
)

// announcing is the service whose answers announce their trailers, as those of many servers
// of gRPC do.
const announcing = "/announcing/"

// answerCall answers with as many bytes as the method of the call names.
func answerCall(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	h := w.Header()
	h["Content-Type"] = grpcType
	trailer := http.TrailerPrefix + "Grpc-Status"
	if strings.HasPrefix(r.URL.Path, announcing) {
		h["Trailer"], trailer = grpcStatus, "Grpc-Status"
	}
	size, err := strconv.Atoi(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	if err != nil || size < 0 || size > len(message) {
		http.Error(w, "the method is not a size", http.StatusBadRequest) // spoils the measurement
		return
	}
	_, _ = w.Write(message[:size])
	h[trailer] = grpcOK
}

// noBody stands for the size of an answer that has no body.
const noBody = 1 << 30

func serveBackend(c net.Conn) {
	defer c.Close()
	br := bufio.NewReaderSize(c, 4096)
	var answer []byte
	answered := -1 // the size of answer
	for {
		size := -1
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			if size < 0 {
				_, rest, _ := bytes.Cut(line, []byte(" /"))
				path, _, _ := bytes.Cut(rest, []byte(" "))
				size = 0
				if string(path) == "none" {
					size = noBody
				}
				for _, d := range path {
					if d < '0' || d > '9' || size > 1<<20 {
						break
					}
					size = size*10 + int(d-'0')
				}
			}
			if len(line) == 2 {
				break
			}
		}
		if size != answered {
			answered = size
			if size == noBody {
				answer = []byte("HTTP/1.1 204 No Content\r\n\r\n")
			} else {
				answer = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + strings.Repeat("x", size))
			}
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
