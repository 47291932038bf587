import { readFile, readdir } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { findContractSteps } from './contract-steps.ts'

const folder = new URL('../../../core/db/migrations/', import.meta.url)

/** The last release with its last migration. */
const lastRelease: { version: string; migration: string } = JSON.parse(
  await readFile(new URL('../../../deploy/release.json', import.meta.url), 'utf8'),
)

/**
 * Steps since the last release with which that release runs nevertheless, each with the reason. The
 * commit of a release empties it.
 */
const allowed: Readonly<Record<string, string>> = {}

const stepsOf = (text: string): string[] =>
  findContractSteps([{ file: '0099_next.sql', text }]).map(({ name, step }) => `${name}: ${step}`)

describe('a migration since the last release', () => {
  it('removes, renames and narrows nothing that the last release uses', async () => {
    const names = (await readdir(folder)).toSorted()
    expect(names).toContain(lastRelease.migration)
    const files = await Promise.all(
      names
        .filter((file) => file > lastRelease.migration)
        .map(async (file) => ({ file, text: await readFile(new URL(file, folder), 'utf8') })),
    )
    const steps = findContractSteps(files).map(({ file, name, step }) => `${file} ${name}: ${step}`)
    expect(steps).toEqual(Object.keys(allowed))
  })
})

describe('the check of migrations', () => {
  it.each([
    ['drop table users', 'users: drop table users'],
    [
      'drop view if exists app_owners cascade',
      'app_owners: drop view if exists app_owners cascade',
    ],
    ['alter table users drop column mail', 'users: drop column mail'],
    ['alter table users\n  drop mail', 'users: drop mail'],
    ['ALTER TABLE only users RENAME COLUMN a TO b', 'users: rename column a to b'],
    ['alter table users rename to people', 'users: rename to people'],
    ['alter table users alter column a set not null', 'users: alter column a set not null'],
    ['alter table users alter a type text', 'users: alter a type text'],
    ['alter table users alter a drop default', 'users: alter a drop default'],
    ['alter table users add column a text not null', 'users: add column a text not null'],
    ['alter view app_owners rename to owners', 'app_owners: rename to owners'],
  ])('finds %j', (text, step) => expect(stepsOf(`${text};`)).toEqual([step]))

  it('finds each step of a statement, and those between others', () => {
    const text = `-- a comment; with a semicolon
      alter table a add column x numeric(38,0) not null default 0, drop column y, add check (z in (1, 2)), drop w;
      create function f() returns int language sql as $$ select 1; drop table a $$;`
    expect(stepsOf(text)).toEqual(['a: drop column y', 'a: drop w'])
  })

  it.each([
    'alter table a add column b text',
    "alter table a add column b text not null default 'drop table c;'",
    'alter table a add constraint a_b check (b is not null) not valid',
    'alter table a drop constraint a_b',
    'create index a_b on a (b); drop index a_c',
    '-- drop table a;',
    'create table a (b text not null); alter table a drop column b; drop table a',
  ])('accepts %j', (text) => expect(stepsOf(text)).toEqual([]))
})
