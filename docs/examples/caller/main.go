// A caller that discovers relays and keeps connections to three, with two in reserve.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/ringway/ringway/selection/client"
)

func main() {
	if err := run(context.Background(), os.Stdout, client.Config{Seeds: []string{"127.0.0.1:7410"}}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, cfg client.Config) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ringway, err := client.New(cfg)
	if err != nil {
		return err
	}
	go func() { _ = ringway.Run(ctx) }()

	web := &http.Client{Transport: ringway, Timeout: 10 * time.Second}
	req, err := http.NewRequestWithContext(client.WithKey(ctx, "alice"), http.MethodGet, "http://echo/", nil)
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // the request occupies a connection until the body is closed
	_, _ = fmt.Fprintln(out, resp.Status)
	_, err = io.Copy(out, resp.Body)
	return err
}
