{{/* A rule for connections to a server; none if it has no ports. Takes: root, server. */}}
{{- define "headwater.egress" -}}
{{- with get .root.Values.networkPolicies.servers .server }}
{{- $server := . }}
{{- if .ports }}
- ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- if eq $.server "dns" }}
    - {protocol: UDP, port: {{ . }}}
    {{- end }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The policy of a program. Takes: root, component, servers, and starts: whether it starts work on Spark's machines. */}}
{{- define "headwater.networkPolicy" -}}
{{- $policies := .root.Values.networkPolicies }}
{{- $servers := .servers }}
{{- $onKubernetes := include "headwater.onKubernetes" .root }}
{{- $peers := list }}
{{- if and .starts (include "headwater.onCluster" .root) }}
{{- $servers = concat $servers (list "checkpoints" (ternary "kubernetes" "sparkMaster" (not (empty $onKubernetes)))) }}
{{- $peers = $policies.sparkPeers }}
{{- if $onKubernetes }}
{{- $peers = append $peers (dict "podSelector" (dict "matchLabels" (include "headwater.selector" (dict "root" .root "component" "executor") | fromYaml))) }}
{{- end }}
{{- else if and .starts .root.Values.checkpoints.location }}
{{- $servers = append $servers "checkpoints" }}
{{- end }}
{{- if eq .component "executor" }}
{{- range list "projections" "replay" "executor" }}
{{- $peers = append $peers (dict "podSelector" (dict "matchLabels" (include "headwater.selector" (dict "root" $.root "component" .) | fromYaml))) }}
{{- end }}
{{- end }}
spec:
  podSelector:
    matchLabels:
      {{- include "headwater.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- $count := 0 }}
  {{- if has .component (list "api" "handler" "projections" "sources") }}
  {{- $count = include "headwater.metricsPorts" . | int }}
  {{- end }}
  {{- $read := and $count $policies.metricsFrom }}
  {{- if or $read $peers (eq .component "api") }}
  ingress:
    {{- if eq .component "api" }}
    - ports: [{protocol: TCP, port: http}]
      {{- with $policies.apiFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if $read }}
    - ports:
        {{- range $at := until $count }}
        - {protocol: TCP, port: metrics-{{ $at }}}
        {{- end }}
      from:
        {{- toYaml $policies.metricsFrom | nindent 8 }}
    {{- end }}
    {{- with $peers }}
    - from:
        {{- toYaml . | nindent 8 }}
    {{- end }}
  {{- end }}
  egress:
    {{- range $servers }}
    {{- with include "headwater.egress" (dict "root" $.root "server" .) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with $peers }}
    - to:
        {{- toYaml . | nindent 8 }}
    {{- end }}
{{- end }}
