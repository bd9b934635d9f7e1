with step_1 as (
select
  substring(topic, 8) as topic,
  cast(key as string) as key,
  value,
  cast(value as string) as record,
  `partition`,
  `offset`,
  timestamp as time
from records
), step_2 as (
select
  *,
  startswith(key, 'heartbeat/') and key = concat('heartbeat/', `partition`) as heartbeat,
  is_valid_utf8(record) as is_text,
  startswith(ltrim(record), '{') and endswith(rtrim(record), '}') as is_object,
  topic = 'events' and value is null as tombstone,
  from_json(if(topic = 'events', record, null), 'specversion string, id string, type string, subject string, sequence bigint, dataversion bigint, data struct<`available_from`: string, `category`: string, `changed_at`: string, `description`: string, `labels`: string, `name`: string, `price`: string, `weight_kg`: double>', map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')) as document,
  if(topic in ('cdc.shop.public.products'), from_json(record, 'op string, before struct<`available_from`: string, `category`: string, `changed_at`: string, `description`: string, `labels`: string, `name`: string, `price`: string, `weight_kg`: string>, after struct<`available_from`: string, `category`: string, `changed_at`: string, `description`: string, `labels`: string, `name`: string, `price`: string, `weight_kg`: string>', map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')), null) as change,
  if(topic in ('cdc.shop.public.products'), from_json(concat('{"key":', key, '}'), 'key struct<`sku`: string>', map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')).key, null) as row_key,
  cast(null as array<string>) as present
from step_1
), step_3 as (
select
  *,
  case topic when 'cdc.shop.public.products' then struct(if(change.after.`available_from` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`available_from`) > 16, false) and not change.before.`available_from` in ('\u0000__headwater_unchanged__'), change.before.`available_from`, '\u0000__headwater_unchanged__'), change.after.`available_from`) as `available_from`, if(change.after.`category` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`category`) > 16, false) and not change.before.`category` in ('\u0000__headwater_unchanged__'), change.before.`category`, '\u0000__headwater_unchanged__'), change.after.`category`) as `category`, if(change.after.`changed_at` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`changed_at`) > 16, false) and not change.before.`changed_at` in ('\u0000__headwater_unchanged__'), change.before.`changed_at`, '\u0000__headwater_unchanged__'), change.after.`changed_at`) as `changed_at`, if(change.after.`description` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`description`) > 16, false) and not change.before.`description` in ('\u0000__headwater_unchanged__'), change.before.`description`, '\u0000__headwater_unchanged__'), change.after.`description`) as `description`, if((change.after.`labels` in ('\u0000__headwater_unchanged__') or (change.op = 'u' and change.after.`labels` in ('["\\u0000__headwater_unchanged__"]'))), if(coalesce(startswith(ltrim(' 	\r\n', change.before.`labels`), '[') and ltrim(' 	\r\n', change.before.`labels`) <> '[]', false) and not (change.before.`labels` in ('\u0000__headwater_unchanged__') or (change.op = 'u' and change.before.`labels` in ('["\\u0000__headwater_unchanged__"]'))), change.before.`labels`, '\u0000__headwater_unchanged__'), change.after.`labels`) as `labels`, if(change.after.`name` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`name`) > 16, false) and not change.before.`name` in ('\u0000__headwater_unchanged__'), change.before.`name`, '\u0000__headwater_unchanged__'), change.after.`name`) as `name`, if(change.after.`price` in ('\u0000__headwater_unchanged__'), if(coalesce(length(change.before.`price`) > 16, false) and not change.before.`price` in ('\u0000__headwater_unchanged__'), change.before.`price`, '\u0000__headwater_unchanged__'), change.after.`price`) as `price`, if(change.after.`weight_kg` in ('\u0000__headwater_unchanged__'), '\u0000__headwater_unchanged__', change.after.`weight_kg`) as `weight_kg`) end as row_texts
from step_2
), step_4 as (
select
  *,
  case topic when 'cdc.shop.public.products' then struct(if((value is null or change.op = 'd'), 'cdc.shop.public.products.deleted', 'cdc.shop.public.products') as type, cast(row_key.`sku` as string) as key, struct(cast(if(row_texts.`available_from` = '\u0000__headwater_unchanged__', null, if(row_texts.`available_from` rlike '\\A(?:(?!0000)[0-9]{4}-(?s:.*))\\z', if(if(if(endswith(row_texts.`available_from`, 'Z'), left(row_texts.`available_from`, length(row_texts.`available_from`) - 1), row_texts.`available_from`) rlike '\\A[0-9]{4}-[0-9]{2}-[0-9]{2}\\z' and not startswith(if(endswith(row_texts.`available_from`, 'Z'), left(row_texts.`available_from`, length(row_texts.`available_from`) - 1), row_texts.`available_from`), '0000') and try_cast(if(endswith(row_texts.`available_from`, 'Z'), left(row_texts.`available_from`, length(row_texts.`available_from`) - 1), row_texts.`available_from`) as date) is not null, if(endswith(row_texts.`available_from`, 'Z'), left(row_texts.`available_from`, length(row_texts.`available_from`) - 1), row_texts.`available_from`), null) is null, null, if(endswith(row_texts.`available_from`, 'Z'), left(row_texts.`available_from`, length(row_texts.`available_from`) - 1), row_texts.`available_from`)), null)) as string) as `available_from`, cast(if(row_texts.`category` = '\u0000__headwater_unchanged__', null, if(row_texts.`category` in ('tea', 'coffee', 'spices', 'books', 'tableware'), row_texts.`category`, null)) as string) as `category`, cast(if(row_texts.`changed_at` = '\u0000__headwater_unchanged__', null, if(if(row_texts.`changed_at` rlike '\\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?\\z', try_cast(row_texts.`changed_at` as timestamp), null) between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z', if(row_texts.`changed_at` rlike '\\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?\\z', try_cast(row_texts.`changed_at` as timestamp), null), null)) as string) as `changed_at`, cast(if(row_texts.`description` = '\u0000__headwater_unchanged__', null, row_texts.`description`) as string) as `description`, cast(if(row_texts.`labels` = '\u0000__headwater_unchanged__', null, if(startswith(ltrim(' 	\r\n', row_texts.`labels`), '[') and not coalesce(((row_texts.`labels` rlike '\\\\u[dD][89a-fA-F]' and regexp_replace(regexp_replace(row_texts.`labels`, '\\\\\\\\', ''), '\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '') rlike '\\\\u[dD][89a-fA-F]') or (row_texts.`labels` rlike '[eE]\\+?[0-9]{3}|[0-9]{309}' and (length(from_json(concat('{"v":', row_texts.`labels`, '}'), 'v string', map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')).v) - length(replace(from_json(concat('{"v":', row_texts.`labels`, '}'), 'v string', map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')).v, 'Infinity', ''))) > (length(row_texts.`labels`) - length(replace(row_texts.`labels`, 'Infinity', ''))))), false), ltrim(' 	\r\n', row_texts.`labels`), null)) as string) as `labels`, cast(if(row_texts.`name` = '\u0000__headwater_unchanged__', null, row_texts.`name`) as string) as `name`, cast(if(row_texts.`price` = '\u0000__headwater_unchanged__', null, if(row_texts.`price` in ('-Infinity', 'Infinity', 'NAN', 'NEGATIVE_INFINITY', 'NaN', 'POSITIVE_INFINITY'), null, if(try_cast(regexp_extract(if(row_texts.`price` rlike '\\A(?:-?[0-9](\\.[0-9]{1,90})?[eE][+-]?[0-4]?[0-9])\\z', concat(if(startswith(row_texts.`price`, '-'), '-', ''), left(concat(repeat('0', 50), rpad(translate(substring_index(upper(row_texts.`price`), 'E', 1), '-.', ''), 150, '0')), try_cast(substring_index(upper(row_texts.`price`), 'E', -1) as int) + 51), '.', substring(concat(repeat('0', 50), rpad(translate(substring_index(upper(row_texts.`price`), 'E', 1), '-.', ''), 150, '0')), try_cast(substring_index(upper(row_texts.`price`), 'E', -1) as int) + 51 + 1)), row_texts.`price`), '\\A(?:(?=-?[0-9])-?0*[0-9]{0,10}(\\.(?=[0-9])[0-9]{0,2}0*)?)\\z', 0) as decimal(12,2)) is null, null, row_texts.`price`))) as string) as `price`, cast(if(row_texts.`weight_kg` = '\u0000__headwater_unchanged__', null, if(abs(if(row_texts.`weight_kg` rlike '\\A(?:-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]{1,3})?)\\z', try_cast(row_texts.`weight_kg` as double), null)) <= 1.7976931348623157E308D, if(row_texts.`weight_kg` rlike '\\A(?:-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]{1,3})?)\\z', try_cast(row_texts.`weight_kg` as double), null), null)) as double) as `weight_kg`) as data) end as row_values
from step_3
), step_5 as (
select
  *,
  case topic when 'cdc.shop.public.products' then struct(concat(if((coalesce(row_texts.`available_from`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`available_from` is null), array('available_from'), cast(array() as array<string>)), if((coalesce(row_texts.`category`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`category` is null), array('category'), cast(array() as array<string>)), if((coalesce(row_texts.`changed_at`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`changed_at` is null), array('changed_at'), cast(array() as array<string>)), if((coalesce(row_texts.`description`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`description` is null), array('description'), cast(array() as array<string>)), if((coalesce(row_texts.`labels`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`labels` is null), array('labels'), cast(array() as array<string>)), if((coalesce(row_texts.`name`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`name` is null), array('name'), cast(array() as array<string>)), if((coalesce(row_texts.`price`, '') <> '\u0000__headwater_unchanged__' and row_values.data.`price` is null), array('price'), cast(array() as array<string>)), if((coalesce(row_texts.`weight_kg`, '') <> '\u0000__headwater_unchanged__' and row_texts.`weight_kg` is not null and row_values.data.`weight_kg` is null and not (row_texts.`weight_kg` in ('-Infinity', 'Infinity', 'NAN', 'NEGATIVE_INFINITY', 'NaN', 'POSITIVE_INFINITY') or row_texts.`weight_kg` rlike '\\A(?:-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]{1,3})?)\\z')), array('weight_kg'), cast(array() as array<string>))) as unfit, concat(if(row_texts.`available_from` = '\u0000__headwater_unchanged__', array('available_from'), cast(array() as array<string>)), if(row_texts.`category` = '\u0000__headwater_unchanged__', array('category'), cast(array() as array<string>)), if(row_texts.`changed_at` = '\u0000__headwater_unchanged__', array('changed_at'), cast(array() as array<string>)), if(row_texts.`description` = '\u0000__headwater_unchanged__', array('description'), cast(array() as array<string>)), if(row_texts.`labels` = '\u0000__headwater_unchanged__', array('labels'), cast(array() as array<string>)), if(row_texts.`name` = '\u0000__headwater_unchanged__', array('name'), cast(array() as array<string>)), if(row_texts.`price` = '\u0000__headwater_unchanged__', array('price'), cast(array() as array<string>)), if(row_texts.`weight_kg` = '\u0000__headwater_unchanged__', array('weight_kg'), cast(array() as array<string>))) as unchanged) end as row_lacks
from step_4
), step_6 as (
select
  topic as `topic`,
  key as `key`,
  value as `value`,
  record as `record`,
  cast(`partition` as bigint) as `partition`,
  `offset` as `offset`,
  time as `time`,
  unix_millis(time) as `timestamp_ms`,
  tombstone as `tombstone`,
  heartbeat as `heartbeat`,
  if(topic = 'events', 
  case
    when not is_text then 'not an event: the record is not UTF-8 text'
    when document.specversion is null then 'not an event: malformed JSON, or no "specversion"'
    when not is_object then 'not an event: the record is not one JSON object'
    when document.specversion <> '1.0'
      then 'not an event: "specversion" is not "1.0"'
    when coalesce(document.id, '') = '' then 'not an event: "id" is missing'
    when coalesce(document.type, '') = '' then 'not an event: "type" is missing'
    when coalesce(document.subject, '') = '' then 'not an event: "subject" is missing'
    when coalesce(document.sequence, 0) < 1
      then 'not an event: "sequence" is missing, or less than 1'
  end, 
  case
    when value is not null and not is_text then 'not a change: the record is not UTF-8 text'
    when value is not null and change.op is null then 'not a change: malformed JSON, or no "op"'
    when value is not null and change.op not in ('c', 'r', 'u', 'd') then 'not a change: "op" is not c, r, u or d'
    when row_values.key is null then case topic when 'cdc.shop.public.products' then 'not a change: its key lacks "sku", or has it with another type' end
    when not (value is null or change.op = 'd') and change.after is null then 'not a change: "after" is missing'
  end) as `refusal`,
  if(topic = 'events', document.id, concat(topic, '/', `partition`, ':', `offset`)) as `id`,
  if(topic = 'events', document.type, row_values.type) as `type`,
  if(topic = 'events', document.subject, row_values.key) as `stream`,
  if(topic = 'events', document.sequence, `offset`) as `sequence`,
  if(topic = 'events', coalesce(document.dataversion, 0), cast(1 as bigint)) as `data_version`,
  if(topic = 'events', document.data, row_values.data) as `data`,
  if(topic = 'events', null, row_lacks.unfit) as `unfit`,
  if(topic = 'events', null, row_lacks.unchanged) as `unchanged`
from step_5
), step_7 as (
select
  case
  when tombstone then null
  when heartbeat then case topic when 'events' then array(struct('golden.patches' as topic, concat('progress/', `partition`) as key, to_json(struct(`partition` as p, `offset` as o, timestamp_ms as t, array('product_search@2') as v)) as value, 0 as `partition`)) when 'cdc.shop.public.products' then array(struct('golden.patches' as topic, concat('progress/', concat(topic, '/', `partition`)) as key, to_json(struct(concat(topic, '/', `partition`) as p, `offset` as o, timestamp_ms as t, array('product_search@2') as v)) as value, 0 as `partition`)) end
  when refusal is not null then array(struct('golden.dead-letters' as topic, concat(topic, '/', `partition`, '/', `offset`) as key, to_json(struct(topic, `partition`, `offset`, if(octet_length(value) > 2621440, concat(refusal, ' (value not kept: ', octet_length(value), ' bytes are too large)'), refusal) as reason, time, translate(base64(cast(key as binary)), '\r\n', '') as key, if(octet_length(value) > 2621440, null, translate(base64(value), '\r\n', '')) as value)) as value, 0 as `partition`))
  else case
    when type = 'cdc.shop.public.products' then array(if(arrays_overlap(unfit, array('available_from', 'category', 'changed_at', 'description', 'labels', 'name', 'price', 'weight_kg')), null, if(not arrays_overlap(unchanged, array('available_from', 'category', 'changed_at', 'description', 'labels', 'name', 'price', 'weight_kg')), struct('golden.patches' as topic, concat('product_search@2/', `stream`) as key, to_json(struct(concat(topic, '/', `partition`) as p, `offset` as o, 0 as i, timestamp_ms as t, struct(`offset` as `_order0`, data.`name` as `name`, data.`category` as `category`, data.`description` as `description`, cast(cast(try_cast(regexp_extract(if(data.`price` rlike '\\A(?:-?[0-9](\\.[0-9]{1,90})?[eE][+-]?[0-4]?[0-9])\\z', concat(if(startswith(data.`price`, '-'), '-', ''), left(concat(repeat('0', 50), rpad(translate(substring_index(upper(data.`price`), 'E', 1), '-.', ''), 150, '0')), try_cast(substring_index(upper(data.`price`), 'E', -1) as int) + 51), '.', substring(concat(repeat('0', 50), rpad(translate(substring_index(upper(data.`price`), 'E', 1), '-.', ''), 150, '0')), try_cast(substring_index(upper(data.`price`), 'E', -1) as int) + 51 + 1)), data.`price`), '\\A(?:(?=-?[0-9])-?0*[0-9]{0,10}(\\.(?=[0-9])[0-9]{0,2}0*)?)\\z', 0) as decimal(12,2)) as decimal(12,2)) as string) as `price`, data.`weight_kg` as `weight_kg`, data.`labels` as `labels`, if(data.`available_from` rlike '\\A[0-9]{4}-[0-9]{2}-[0-9]{2}\\z' and not startswith(data.`available_from`, '0000') and try_cast(data.`available_from` as date) is not null, data.`available_from`, null) as `available_from`, date_trunc('millisecond', if(if(data.`changed_at` rlike '\\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?\\z', try_cast(data.`changed_at` as timestamp), null) between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z', if(data.`changed_at` rlike '\\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?\\z', try_cast(data.`changed_at` as timestamp), null), null)) as `changed_at`, `offset` as `_order_deleted`, false as `_deleted`) as c)) as value, cast(crc32(cast(concat('product_search@2/', `stream`) as binary)) % 1 as int) as `partition`), null)), if(arrays_overlap(unfit, array('available_from', 'category', 'changed_at', 'description', 'labels', 'name', 'price', 'weight_kg')), struct('golden.dead-letters' as topic, concat(topic, '/', `partition`, '/', `offset`) as key, to_json(struct(topic, `partition`, `offset`, if(octet_length(value) > 2621440, concat(concat('"cdc.shop.public.products" lacks a column, or has it with another type: ', array_join(array_intersect(array('available_from', 'category', 'changed_at', 'description', 'labels', 'name', 'price', 'weight_kg'), unfit), ', ')), ' (value not kept: ', octet_length(value), ' bytes are too large)'), concat('"cdc.shop.public.products" lacks a column, or has it with another type: ', array_join(array_intersect(array('available_from', 'category', 'changed_at', 'description', 'labels', 'name', 'price', 'weight_kg'), unfit), ', '))) as reason, time, translate(base64(cast(key as binary)), '\r\n', '') as key, if(octet_length(value) > 2621440, null, translate(base64(value), '\r\n', '')) as value)) as value, 0 as `partition`), null))
    when type = 'cdc.shop.public.products.deleted' then array(if(false, null, struct('golden.patches' as topic, concat('product_search@2/', `stream`) as key, to_json(struct(concat(topic, '/', `partition`) as p, `offset` as o, 0 as i, timestamp_ms as t, struct(`offset` as `_order0`, cast(null as string) as `name`, cast(null as string) as `category`, cast(null as string) as `description`, cast(cast(cast(null as decimal(12,2)) as decimal(12,2)) as string) as `price`, cast(null as double) as `weight_kg`, cast(null as string) as `labels`, cast(null as string) as `available_from`, cast(null as timestamp) as `changed_at`, `offset` as `_order_deleted`, true as `_deleted`) as c)) as value, cast(crc32(cast(concat('product_search@2/', `stream`) as binary)) % 1 as int) as `partition`)))
    else if(topic = 'events', cast(null as array<struct<topic: string, key: string, value: string, `partition`: int>>), null)
  end
  end as listed
from step_6
), step_8 as (
select
  explode(listed) as made
from step_7
), step_9 as (
select
  made.topic as topic,
  made.key as key,
  made.value as value,
  made.`partition`
from step_8
where made is not null
)
select
  topic,
  if(octet_length(key) + octet_length(value) > 4128768, left(key, 1000), key) as key,
  if(octet_length(key) + octet_length(value) > 4128768, concat('{"too_large":', octet_length(key) + octet_length(value), '}'), value) as value,
  `partition`
from step_9
