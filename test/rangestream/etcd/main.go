// Command etcd runs one member of the etcd that it is built with, on loopback and without fsync, until it is told to stop.
// Its first line of output is where it serves. With etcd-3.6.mod it is an etcd 3.6 (see the Makefile).
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const startTimeout = time.Minute

func main() {
	folder := flag.String("data-dir", "", "`folder` for its data")
	flag.Parse()
	if err := run(*folder); err != nil {
		log.Fatal(err)
	}
}

func run(folder string) error {
	config := embed.NewConfig()
	config.Dir = folder
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 8 << 30
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback, loopback
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback, loopback
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(startTimeout):
		return errors.New("start etcd: not ready in time")
	}
	fmt.Println(server.Clients[0].Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}
