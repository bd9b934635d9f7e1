{{/* What connectors that are applied from this pod have instead of passwords. */}}
{{- define "headwater.connectEnv" -}}
{{- with .Values.sources.connectKafka }}
{{- if .password }}
- name: HEADWATER_CONNECT_KAFKA_PASSWORD
  value: {{ .password | quote }}
{{- end }}
{{- if .key }}
- name: HEADWATER_CONNECT_KAFKA_KEY
  value: {{ .key | quote }}
{{- end }}
{{- end }}
{{- end }}
