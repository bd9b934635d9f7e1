{{/* The beginning of all names. */}}
{{- define "headwater.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-headwater" .Release.Name) (contains "headwater" .Release.Name) -}}
{{- if not (or .Values.fullnameOverride (regexMatch "^[a-z]" $name)) }}
{{- fail (printf "set fullnameOverride: names of Services begin with a letter, and %s does not" $name) }}
{{- end }}
{{- .Values.fullnameOverride | default $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What selects the pods of a program. Takes: root, component. */}}
{{- define "headwater.selector" -}}
app.kubernetes.io/name: headwater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Takes: root, component. */}}
{{- define "headwater.labels" -}}
{{ include "headwater.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "headwater.image" -}}
{{- $repository := required "set image.repository to the image with your package" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* Whether Spark's work runs on other machines; empty: it does not. */}}
{{- define "headwater.onCluster" -}}
{{- if and .Values.spark.master (not (hasPrefix "local" .Values.spark.master)) }}yes{{ end -}}
{{- end }}

{{/* Whether its executors are pods; empty: they are not. */}}
{{- define "headwater.onKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.spark.master }}yes{{ end -}}
{{- end }}

{{/* Whether there is a spark-defaults.conf; empty: there is none. */}}
{{- define "headwater.hasSparkConf" -}}
{{- if or .Values.spark.conf (include "headwater.onKubernetes" .) }}yes{{ end -}}
{{- end }}

{{/* How many ports with metrics a pod has: one per process. Takes: root, component. */}}
{{- define "headwater.metricsPorts" -}}
{{- $values := .root.Values -}}
{{- if not $values.metrics.enabled -}}
0
{{- else if eq .component "api" -}}
{{ $values.api.workers }}
{{- else if eq .component "handler" -}}
{{ $values.handler.processes }}
{{- else if eq .component "projections" -}}
{{- /* the views and the live query, and loaders of the stores that are there */ -}}
{{- $count := ternary 3 2 $values.projections.streamViews -}}
{{- range list "postgres" "elasticsearch" "valkey" -}}
{{- $own := get $values.projections.account.secrets . | default dict -}}
{{- if or $own.name (get $values.secrets .).name (get $values .).address -}}
{{- $count = add $count $values.projections.loaders -}}
{{- end -}}
{{- end -}}
{{ $count }}
{{- else -}}
1
{{- end -}}
{{- end }}

{{/* The ports of a container with metrics. Takes: root, component. */}}
{{- define "headwater.containerPorts" -}}
{{- range $at := until (include "headwater.metricsPorts" . | int) }}
- name: metrics-{{ $at }}
  containerPort: {{ add $.root.Values.metrics.port $at }}
{{- end }}
{{- end }}
