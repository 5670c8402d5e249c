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

	"github.com/ringway/ringway/selection/pool/client"
)

func main() {
	ctx := context.Background()
	ringway, err := client.New(client.Config{Seeds: []string{"127.0.0.1:7410"}})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(ringway.Run(ctx)) }()

	web := &http.Client{Transport: ringway, Timeout: 10 * time.Second}
	req, err := http.NewRequestWithContext(client.WithKey(ctx, "alice"), http.MethodGet, "http://echo/", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := web.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close() // the request occupies a connection until the body is closed
	fmt.Println(resp.Status)
	_, _ = io.Copy(os.Stdout, resp.Body)
}
