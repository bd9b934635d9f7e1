{{/* What the jobs of operators have in common: replay, plan, create. Takes a program, with words, the arguments, and retries. */}}
{{- define "headwater.jobSpec" -}}
{{- with .deadlineSeconds }}
activeDeadlineSeconds: {{ . }}
{{- end }}
backoffLimit: {{ .retries }}
{{- if .retries }}
# what is refused, or called wrongly, would be again
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: {{ .component }}
        operator: In
        values: [2, 3]
{{- end }}
template:
  metadata:
    labels:
      {{- include "headwater.labels" . | nindent 6 }}
    {{- with .values.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    {{- include "headwater.pod" . | nindent 4 }}
    containers:
      - name: {{ .component }}
        args: {{ toJson .words }}
        {{- include "headwater.container" . | nindent 8 }}
    volumes:
      {{- include "headwater.volumes" . | trim | nindent 6 }}
{{- end }}

{{- define "headwater.actor" -}}
{{- with .Values.replay.actor -}}
- name: HEADWATER_ACTOR
  value: {{ . | quote }}
{{- end }}
{{- end }}
