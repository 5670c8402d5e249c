package discovery_test

import (
	"context"
	"fmt"
	"net"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/internal/discovery"
)

func Example() {
	// A DNS server on loopback, with two relays behind one name.
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	up, down := make(chan struct{}), make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(answer)}
	go func() { defer close(down); _ = server.ActivateAndServe() }()
	<-up
	defer func() { _ = server.Shutdown(); <-down }()

	resolver, err := discovery.NewResolver(discovery.ResolverConfig{
		Servers:      []string{packets.LocalAddr().String()},
		AllowedCIDRs: []string{"10.0.0.0/8"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	finder, err := discovery.New(discovery.Config{
		Seeds:    []string{"10.0.9.9:7401", "dns+relays.example"},
		Resolver: resolver,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(finder.Addrs()) // names take a refresh; Run does one immediately
	if err := finder.Refresh(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(finder.Addrs())
	// Output:
	// [10.0.9.9:7401]
	// [10.0.9.9:7401 10.0.0.1:7400 10.0.0.2:7400]
}

func answer(w dns.ResponseWriter, question *dns.Msg) {
	reply := new(dns.Msg).SetReply(question)
	if question.Question[0].Qtype == dns.TypeA {
		for _, ip := range []string{"10.0.0.1", "10.0.0.2", "203.0.113.7"} { // one is outside the CIDRs
			rr, _ := dns.NewRR(question.Question[0].Name + " 30 IN A " + ip)
			reply.Answer = append(reply.Answer, rr)
		}
	}
	_ = w.WriteMsg(reply)
}
