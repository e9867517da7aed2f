// Command resizer makes a node's volumes grow when their claim asks for more: those of one class, whose volumes are file
// systems of their own, much of which is kept back. Then it says so in the volume and in the claim.
//
// It runs on the node that it serves, beside localvolumes: what makes volumes, and what resizes them, are two programs with
// most providers of storage, too.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	nodeLabel = "shardwright.test/node"
	claims    = "/api/v1/persistentvolumeclaims"
	volumes   = "/api/v1/persistentvolumes/"
)

type claim struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		VolumeName       string `json:"volumeName"`
		StorageClassName string `json:"storageClassName"`
		Resources        struct {
			Requests map[string]string `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
}

type claimList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []claim `json:"items"`
}

type volume struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Capacity map[string]string `json:"capacity"`
		Local    struct {
			Path string `json:"path"`
		} `json:"local"`
	} `json:"spec"`
}

// resizer is the program's state.
type resizer struct {
	server, token, node, class string
	client                     *http.Client
}

// request sends one request; whoever asked closes the answer's body.
func (r *resizer) request(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.server+path, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, b)
	}
	return res, nil
}

// get decodes what there is at a path into out.
func (r *resizer) get(ctx context.Context, path string, out any) error {
	res, err := r.request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(out)
}

var units = []struct {
	suffix string
	factor int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"", 1},
}

// size reads a quantity of bytes, of those kinds that people write for volumes.
func size(quantity string) (int64, error) {
	for _, u := range units {
		if number, found := strings.CutSuffix(quantity, u.suffix); found {
			f, err := strconv.ParseFloat(number, 64)
			return int64(f * float64(u.factor)), err
		}
	}
	return 0, fmt.Errorf("%q is no size", quantity)
}

// patch changes what there is at a path.
func (r *resizer) patch(ctx context.Context, path string, body any) error {
	res, err := r.request(ctx, http.MethodPatch, path, "application/merge-patch+json", body)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// run looks at all claims, and again at each change of one.
func (r *resizer) run(ctx context.Context) error {
	for {
		var list claimList
		if err := r.get(ctx, claims, &list); err != nil {
			return err
		}
		for _, c := range list.Items {
			if err := r.grow(ctx, c); err != nil {
				return fmt.Errorf("%s/%s: %w", c.Metadata.Namespace, c.Metadata.Name, err)
			}
		}
		if err := r.changed(ctx, list.Metadata.ResourceVersion); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// changed returns when a claim changes after a version, or after a while.
func (r *resizer) changed(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	q := url.Values{"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {"50"}}
	res, err := r.request(ctx, http.MethodGet, claims+"?"+q.Encode(), "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var event json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&event); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// grow makes one claim's volume as large as it asks, if that is one of this node's that can.
func (r *resizer) grow(ctx context.Context, c claim) error {
	if c.Spec.VolumeName == "" || c.Spec.StorageClassName != r.class {
		return nil
	}
	var v volume
	path := volumes + c.Spec.VolumeName
	if err := r.get(ctx, path, &v); err != nil {
		return err
	}
	asked, err := size(c.Spec.Resources.Requests["storage"])
	if err != nil {
		return err
	}
	has, err := size(v.Spec.Capacity["storage"])
	if err != nil || v.Metadata.Labels[nodeLabel] != r.node || asked <= has {
		return err
	}
	device, err := deviceOf(v.Spec.Local.Path)
	if err != nil {
		return err
	}
	back, err := keptBack(v.Spec.Local.Path, asked)
	if err != nil {
		return err
	}
	// It takes effect at once, on the file system that is in use.
	tune := exec.CommandContext(ctx, "tune2fs", "-r", strconv.FormatInt(back, 10), device)
	if out, err := tune.CombinedOutput(); err != nil {
		return fmt.Errorf("tune2fs: %w: %s", err, bytes.TrimSpace(out))
	}
	capacity := map[string]any{"capacity": map[string]string{"storage": c.Spec.Resources.Requests["storage"]}}
	// The volume last: as long as it has another capacity than the claim asks for, all of this is done again.
	told := "/api/v1/namespaces/" + c.Metadata.Namespace + "/persistentvolumeclaims/" + c.Metadata.Name + "/status"
	if err := r.patch(ctx, told, map[string]any{"status": capacity}); err != nil {
		return err
	}
	if err := r.patch(ctx, path, map[string]any{"spec": capacity}); err != nil {
		return err
	}
	log.Printf("%s grew to %s", v.Metadata.Name, c.Spec.Resources.Requests["storage"])
	return nil
}

// keptBack is the number of blocks of a file system that nobody may use when it is to look as large as asked.
func keptBack(path string, asked int64) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	// What the file system needs for itself is not in Blocks; it is counted as part of what was asked for.
	all := (int64(s.Blocks)*s.Bsize + 1<<28 - 1) >> 28 << 28
	if asked > all {
		return 0, fmt.Errorf("%d bytes are asked for, there are %d at most", asked, all)
	}
	return (all - asked) / s.Bsize, nil
}

// deviceOf is what is mounted at a path.
func deviceOf(path string) (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(b), "\n") {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) > 4 && left[4] == path && len(right) > 1 {
			return right[1], nil
		}
	}
	return "", fmt.Errorf("%s is no file system of its own", path)
}

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	var r resizer
	flag.StringVar(&r.node, "node", "", "this node's name")
	flag.StringVar(&r.class, "class", "", "the storage class whose volumes are file systems in files")
	flag.StringVar(&r.server, "server", "", "the API server's URL")
	ca := flag.String("ca", "", "the file with the API server's authority")
	tokenFile := flag.String("token", "", "the file with the token to use")
	flag.Parse()

	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		log.Fatal(err)
	}
	r.token = strings.TrimSpace(string(token))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatalf("%s holds no certificate", *ca)
	}
	r.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: pool},
		ResponseHeaderTimeout: 30 * time.Second,
	}}
	for {
		if err := r.run(context.Background()); err != nil {
			log.Print(err)
		}
		time.Sleep(time.Second)
	}
}
