{{- /*
ringway.worker gives a Deployment, StatefulSet, DaemonSet or Job with a worker in its pods. Its
arguments are the context, the name of the template with the object, and the services that the
worker offers, as in RINGWAY_SERVICE:

  {{ include "ringway.worker" (list . "shop.deployment" "shop=127.0.0.1:8080;check=http:/healthz") }}

It adds init containers, volumes and the label ringway.io/role. Where they are not set, it sets the
preStop of the containers and the grace period.
*/ -}}
{{- define "ringway.worker" -}}
{{- if ne (len .) 3 }}{{ fail "ringway.worker: want (list CONTEXT TEMPLATE SERVICES)" }}{{ end }}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $services := index . 2 }}
{{- if not (and (kindIs "string" $services) (contains "=" $services)) }}{{ fail (printf "ringway.worker: %v is no service: want NAME=HOST:PORT with options" $services) }}{{ end }}
{{- $own := index ($root.Subcharts | default dict) "ringway-worker" | required "ringway.worker: the chart does not depend on ringway-worker under this name" }}
{{- $text := include $name $root | trim | trimPrefix "---" }}
{{- if regexMatch "(?m)^---" $text }}{{ fail (printf "ringway.worker: %s is more than one object" $name) }}{{ end }}
{{- $object := fromYaml $text }}
{{- if $object.Error }}{{ fail (printf "ringway.worker: %s is no YAML: %v" $name $object.Error) }}{{ end }}
{{- $template := ($object.spec | default dict).template | default dict }}
{{- $spec := $template.spec | default dict }}
{{- if not $spec.containers }}{{ fail (printf "ringway.worker: %s has no spec.template with containers" $name) }}{{ end }}
{{- $values := dict "service" $services "example" $own.Values.worker }}
{{- $values = merge $values $own.Values }}
{{- $release := dict "Namespace" $own.Values.relaysNamespace }}
{{- $added := include "ringway.worker.pod" (dict "Values" $values "Release" $release "Chart" $own.Chart) | fromYaml }}
{{- if $added.Error }}{{ fail (printf "ringway.worker: the values are no YAML: %v" $added.Error) }}{{ end }}

{{- $taken := dict }}
{{- range concat $spec.containers ($spec.initContainers | default list) }}{{ $_ := set $taken .name true }}{{ end }}
{{- range $added.initContainers }}
{{- if hasKey $taken .name }}{{ fail (printf "ringway.worker: %s has a container %s already" $name .name) }}{{ end }}
{{- /* The pod may run as another user, so the containers name theirs. */ -}}
{{- $_ := set . "securityContext" (merge .securityContext (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault"))) }}
{{- end }}
{{- range $spec.containers }}
{{- $lifecycle := .lifecycle | default dict }}
{{- if not $lifecycle.preStop }}{{ $_ := set . "lifecycle" (merge (dict "preStop" (dict "sleep" (dict "seconds" 10))) $lifecycle) }}{{ end }}
{{- end }}
{{- $_ := set $spec "initContainers" (concat ($spec.initContainers | default list) $added.initContainers) }}
{{- $_ := set $spec "volumes" (concat ($spec.volumes | default list) $added.volumes) }}
{{- if not (hasKey $spec "terminationGracePeriodSeconds") }}{{ $_ := set $spec "terminationGracePeriodSeconds" 330 }}{{ end }}
{{- $metadata := $template.metadata | default dict }}
{{- $_ := set $metadata "labels" (merge (dict "ringway.io/role" "worker") ($metadata.labels | default dict)) }}
{{- $_ := set $template "metadata" $metadata }}
{{- toYaml $object }}
{{- end }}
