"""There are no groups and no permissions: an operator may do all that the admin offers."""

from django.contrib import admin
from django.contrib.auth.models import Group

admin.site.unregister(Group)
